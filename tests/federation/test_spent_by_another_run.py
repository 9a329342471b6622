"""A total that another run of the party spends while this one trains: this one ends in order, for all parties."""

from dataclasses import replace

import pytest

from fdml.events import StepDone
from fdml.federation.join import join
from fdml.federation.party_folder import PartyFolder
from fdml.monitor.listeners import ignore_events
from fdml.privacy.accounts import Counts
from fdml.privacy.ledger import Mechanism, epsilon_of
from tests.federation.folders import serving, together, write_run

EPOCHS, RELEASES = 6, 7
"""Of this run, and how many of a row the total allows in all."""
AFTER = 9
"""The step after which the other run takes the rest."""
TOTAL = epsilon_of(Mechanism("gaussian", 2.0, 4.0), RELEASES, 1e-5)
GUARD = f'[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 4.0\ntotal_epsilon = {TOTAL}\n'


@pytest.mark.slow
def test_a_run_whose_total_another_run_spends_ends_in_order(tmp_path):
    write_run(tmp_path, training=f"epochs = {EPOCHS}\n")
    run = tmp_path / "run.toml"
    run.write_text(run.read_text().replace("epochs = 2\n", ""))
    path = tmp_path / "bob" / "party.toml"
    path.write_text(path.read_text() + GUARD)
    accounts = PartyFolder(path).ledger().accounts

    def spend(event):
        """Another run takes all that is left, once this one has done a step."""
        if isinstance(event, StepDone) and event.step == AFTER:

            def raised(book):
                ((name, own),) = book.runs.items()
                other = replace(own, run="other", counts=Counts(releases=RELEASES - own.counts.releases))
                return replace(book, runs={name: own, "other": other})

            accounts.change(raised)

    with serving(run) as server:
        results = together(
            lambda: join(tmp_path / "ann" / "party.toml", plain=True, server=server.address, on_event=ignore_events),
            lambda: join(path, plain=True, server=server.address, on_event=spend),
        )
    assert server.error is None
    own = [each.counts.releases for each in accounts.read().runs.values() if each.run == "first"]
    assert 1 <= own[0] < EPOCHS
    assert accounts.read().spent(1e-5, record_level=False) <= TOTAL
    assert len(results) == 2
    assert all((tmp_path / party / "runs" / "first" / "model" / "card.json").exists() for party in ("ann", "bob"))
