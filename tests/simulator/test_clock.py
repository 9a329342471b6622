from simulator.clock import EventQueue


def test_what_is_planned_happens_in_order_of_time_then_of_planning():
    queue, done = EventQueue(0), []
    for seconds, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        queue.after(seconds, lambda name=name: done.append((queue.now, name)))
    while queue.next():
        pass
    assert done == [(1.0, "first"), (1.0, "second"), (2.0, "late")]


def test_the_trace_differs_where_anything_happened_otherwise():
    one, other = EventQueue(0), EventQueue(0)
    one.note("a")
    other.note("b")
    assert one.trace_hash() != other.trace_hash()


def test_durations_are_drawn_from_the_seed_and_now_and_then_long():
    one, other = EventQueue(7), EventQueue(7)
    drawn = [one.about(1.0) for _ in range(1000)]
    assert drawn == [other.about(1.0) for _ in range(1000)]
    assert 1.0 < sum(drawn) / 1000 < 2.5
    assert max(drawn) > 10.0


def test_a_queue_without_plans_says_so():
    queue = EventQueue(0)
    queue.after(1.0, lambda: None)
    assert queue.next()
    assert not queue.next()
    assert (queue.now, queue.events) == (1.0, 1)
