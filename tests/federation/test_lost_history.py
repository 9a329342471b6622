"""Chaos 9: epochs that an earlier start evaluated, whose figures are lost with its files, are named at the end."""

import pytest

from fdml.events import Evaluated, Remark, StepDone
from fdml.federation.join import join
from fdml.federation.party_folder import HISTORY
from fdml.monitor.listeners import ignore_events
from tests.federation.folders import RUN, serving, together, write_run


class Ended(Exception):
    """The process ends here."""


@pytest.mark.slow
def test_chaos_9_a_history_that_lacks_epochs_is_said_at_the_end_of_the_run(tmp_path):
    run = write_run(tmp_path, training="peer_timeout_seconds = 60.0\n")
    text = run.read_text().replace("checkpoint_seconds = 0.0", "checkpoint_seconds = 1000.0")
    run.write_text(text.replace("epochs = 2", "epochs = 6"))
    path, said, before = tmp_path / "ann" / "party.toml", [], []

    def ending(event):
        """Three steps after the first evaluation, which the server has stored by then."""
        if isinstance(event, Evaluated) or before:
            before.append(event)
        if sum(isinstance(each, StepDone) for each in before) == 3:
            raise Ended

    with serving(tmp_path / "run.toml") as server:

        def ann():
            try:
                join(path, plain=True, server=server.address, on_event=ending)
            except Ended:
                (tmp_path / "ann" / RUN / HISTORY).unlink()
            join(path, plain=True, server=server.address, on_event=said.append)

        bob = tmp_path / "bob" / "party.toml"
        together(ann, lambda: join(bob, plain=True, server=server.address, on_event=ignore_events))
    texts = [event.text for event in said if isinstance(event, Remark)]
    evaluated = {event.epoch for event in said if isinstance(event, Evaluated)}
    assert 1 not in evaluated
    assert 6 in evaluated
    assert any(text.startswith(f"{HISTORY} lacks epoch") and "an earlier start had evaluated" in text for text in texts)
