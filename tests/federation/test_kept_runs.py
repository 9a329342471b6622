"""Runs of one federation over one alignment, with real servers and parties in folders."""

import json

import numpy as np
import pytest

from fdml.federation.join import align, join
from fdml.federation.party_folder import PartyFolder
from fdml.monitor.listeners import ignore_events
from tests.federation.folders import ROWS, rename, serving, together, write_run

BOTH = ("ann", "bob")
NEW = ROWS // 10


def whole_run(home, name):
    """One run to its end."""
    rename(home / "run.toml", name)
    with serving(home / "run.toml") as server:
        together(
            *(
                lambda party=party: join(
                    home / party / "party.toml",
                    plain=True,
                    server=server.address,
                    on_event=ignore_events,
                )
                for party in BOTH
            )
        )
    assert server.error is None


def aligned(home, name, on_event=ignore_events):
    """The alignment of one run; gives each party's rows."""
    rename(home / "run.toml", name)
    with serving(home / "run.toml") as server:
        found = together(
            *(
                lambda party=party: align(
                    home / party / "party.toml", plain=True, server=server.address, on_event=on_event
                )
                for party in BOTH
            )
        )
        server.stop()
    return dict(zip(BOTH, found, strict=True))


def add_rows(home, first=1000, count=NEW):
    """New persons in front of each party's file, so that all rows have other numbers."""
    for party in BOTH:
        path = home / party / "data.csv"
        header, *rows = path.read_text().splitlines()
        more = [
            f"{first + at},{0.1 * at - 0.5}" + (",yes" if at % 2 else ",no") * (party == "ann") for at in range(count)
        ]
        path.write_text("\n".join([header, *more, *rows]) + "\n")


def allow_more(home):
    for party in BOTH:
        path = home / party / "party.toml"
        path.write_text(path.read_text().replace(f"max_rows = {ROWS}", "max_rows = 10000"))


def ids_of(home, shared, party):
    """The ids of a party's rows, training rows and held-out rows."""
    ids = [line.split(",")[0] for line in (home / party / "data.csv").read_text().splitlines()[1:]]
    return [ids[row] for row in shared.train], [ids[row] for row in shared.held_out]


@pytest.mark.slow
def test_five_runs_over_the_same_files_and_seed_have_the_same_split_and_the_same_figures_to_the_last_bit(tmp_path):
    write_run(tmp_path)
    found = []
    for number in range(5):
        name = f"run{number}"
        whole_run(tmp_path, name)
        rows = {party: PartyFolder(tmp_path / party / "party.toml").shared_rows() for party in BOTH}
        history = json.loads((tmp_path / "ann" / "runs" / name / "history.json").read_text())
        figures = [(each["test_loss"], each["test_metric"]) for each in history]
        models = [
            {key: array.tobytes() for key, array in np.load(path).items()}
            for party in BOTH
            for path in (tmp_path / party / "runs" / name / "model").glob("parameters.npz")
        ]
        assert len(models) == 2
        found.append(
            (figures, models, {party: (each.train.tolist(), each.held_out.tolist()) for party, each in rows.items()})
        )
        assert found[number] == found[0]
    assert found[0][0][-1][1] is not None


def test_of_ten_percent_new_rows_only_their_tokens_reach_the_server(tmp_path):
    write_run(tmp_path)
    allow_more(tmp_path)
    before = aligned(tmp_path, "first")
    old = {party: ids_of(tmp_path, before[party], party) for party in BOTH}
    add_rows(tmp_path)
    after = aligned(tmp_path, "second")
    for party in BOTH:
        train, held_out = ids_of(tmp_path, after[party], party)
        assert train[: len(old[party][0])] == old[party][0], "old rows keep their order"
        assert held_out[: len(old[party][1])] == old[party][1], "held-out rows stay held out"
        assert len(train) + len(held_out) == ROWS + NEW
        assert after[party].report.new == NEW
        saved = before[party].report.bytes_sent - after[party].report.bytes_sent
        assert saved > 16 * (ROWS - NEW) - 200, "16 bytes for each row that was there before, less a longer offer"
    stored = list((tmp_path / "server" / "alignments").glob("*/*-bulletin-tokens-0"))
    sizes = sorted(path.stat().st_size for path in stored)
    assert sizes[1] - sizes[0] == 16 * (ROWS - NEW), "the server has the tokens of the new rows alone"
    third = aligned(tmp_path, "third")
    assert third["ann"].report.since
    assert third["ann"].report.bytes_sent < 300, "an offer, and the question for the plan"
    assert third["ann"].digest == after["ann"].digest


def test_people_are_told_what_is_used_again_and_what_is_new(tmp_path):
    write_run(tmp_path)
    allow_more(tmp_path)
    aligned(tmp_path, "first")
    events = []
    aligned(tmp_path, "second", events.append)
    add_rows(tmp_path)
    aligned(tmp_path, "third", events.append)
    remarks = [event.text for event in events if type(event).__name__ == "Remark"]
    assert sum("rows aligned before on " in text and text.endswith(" are used again") for text in remarks) == 2
    assert remarks.count(f"{NEW:,} new rows, 0 gone; the others keep their order and split") == 2


def test_more_rows_than_a_party_allows_are_refused_when_they_come(tmp_path):
    write_run(tmp_path)
    aligned(tmp_path, "first")
    add_rows(tmp_path)
    rename(tmp_path / "run.toml", "second")
    with serving(tmp_path / "run.toml") as server:
        with pytest.raises(Exception, match=f"brings {ROWS + NEW} rows, and align.max_rows of '(ann|bob)' is {ROWS}"):
            together(
                *(
                    lambda party=party: align(
                        tmp_path / party / "party.toml", plain=True, server=server.address, on_event=ignore_events
                    )
                    for party in BOTH
                )
            )
        server.stop()


def test_what_is_kept_is_for_its_owner_alone(tmp_path):
    write_run(tmp_path)
    aligned(tmp_path, "first")
    kept = [*(tmp_path / "ann" / "alignments").rglob("*"), *(tmp_path / "server" / "alignments").rglob("*")]
    assert len(kept) > 6
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
