from simulator.clock import EventQueue
from simulator.links import Link


def flow(seed, disturb):
    """What of 0..9 arrives when a link is disturbed in the middle."""
    queue, arrived = EventQueue(seed), []
    link = Link(queue, 1.0, arrived.append)
    for number in range(10):
        queue.after(0.3 * number, lambda number=number: link.send(number))
    queue.after(2.0, lambda: disturb(link))
    while queue.next():
        pass
    return arrived


def test_a_stalled_link_brings_everything_in_order():
    for seed in range(20):
        assert flow(seed, lambda link: link.stall(50.0)) == list(range(10))


def test_a_cut_link_brings_a_beginning_in_order_and_nothing_sent_later():
    lengths = set()
    for seed in range(60):
        arrived = flow(seed, lambda link: link.cut())
        assert arrived == list(range(len(arrived)))
        lengths.add(len(arrived))
    assert max(lengths) <= 7, "what was sent after the cut is lost"
    assert len(lengths) > 3
