"""Parties find the rows that all of them hold, as processes over TLS, without showing ids."""

import datetime
import json
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from benchmarks.proxy import Proxy
from fdml.data.encoders import encoder_from_json
from fdml.data.label_encoding import fit_labels
from fdml.federation.scaffold import write_keys
from tests.end_to_end.cluster import RUN, Cluster, Started, running, until, write_federation

pytestmark = pytest.mark.slow
PEOPLE, DAY = 300, datetime.date(2026, 1, 1)
CANARY = "canary-7319"
FEATURE, LABEL = 8765.4321, 271828.25


class Firms(Cluster):
    """Three firms that know overlapping people under other names and types of id, each in an order of its own."""

    def __init__(self, home, align):
        super().__init__(home, ("ann", "bob", "cyd"), align=align)

    def write(self, rows, training):
        home, align = self.home, training["align"]
        home.mkdir(parents=True)
        write_federation(home, self.port, self.parties)
        (home / "run.toml").write_text(
            f'name = "first"\nlabel_party = "ann"\nalign = "{align}"\ntask = "regression"\n'
            "[training]\nepochs = 2\nbatch_size = 10\nbatches_per_block = 2\nvalue_bits = 64\npeer_timeout_seconds = 30.0\n"
        )
        write_keys(home, "e2e", self.parties)
        self.held = _write_files(home)

    def shared(self, party):
        """The people behind a party's rows, in the run's order, and those that are held out."""
        with np.load(self.home / party / RUN / "state" / "alignment") as found:
            return [[self.held[party][row] for row in found[name]] for name in ("train", "held_out")]


def _write_files(home):
    """Ids of two columns: text in CSV at ann, whole numbers and dates at bob, what pandas makes of both at cyd."""
    chance = np.random.default_rng(1)
    held = {}
    for party, share in (("ann", 0.9), ("bob", 0.8), ("cyd", 0.7)):
        people = chance.permutation(PEOPLE)[: int(share * PEOPLE)]
        held[party] = [*people.tolist(), *people[:5].tolist()] if party == "bob" else people.tolist()
    days = {party: [DAY + datetime.timedelta(days=who % 40) for who in held[party]] for party in held}
    x = {party: chance.normal(size=len(held[party])) for party in held}
    ann = {"customer": [f" {who} " for who in held["ann"]], "since": [f"{day}" for day in days["ann"]]}
    ann |= {"x": x["ann"], "spent": [float(who % 7) for who in held["ann"]]}
    bob = {"uid": pa.array(held["bob"], pa.int32()), "day": pa.array(days["bob"], pa.date32()), "x": x["bob"]}
    noon = [datetime.datetime.combine(day, datetime.time()) for day in days["cyd"]]
    cyd = {"nr": pa.array(held["cyd"], pa.float64()), "first": pa.array(noon, pa.timestamp("us")), "x": x["cyd"]}
    pyarrow.csv.write_csv(pa.table(ann), home / "ann" / "data.csv")
    pyarrow.parquet.write_table(pa.table(bob), home / "bob" / "data.parquet")
    pyarrow.parquet.write_table(pa.table(cyd), home / "cyd" / "data.parquet")
    for party, ending, columns, more in (
        ("ann", "csv", '["customer", "since"]', 'label = "spent"\n'),
        ("bob", "parquet", '["uid", "day"]', '[data.ids]\nduplicates = "first"\n'),
        ("cyd", "parquet", '["nr", "first"]', ""),
    ):
        (home / party / "party.toml").write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\n[align]\nmax_rows = 100000\n[data]\npath = "data.{ending}"\nid = {columns}\n{more}'
        )
    return held


@contextmanager
def firms(home, align="tokens"):
    made = Firms(home, align)
    try:
        yield made
    finally:
        made.stop()


def plain_join(held):
    return set(held["ann"]) & set(held["bob"]) & set(held["cyd"])


def check_rows(cluster):
    """All parties have the rows of a plain join, the same person at every place."""
    rows = {party: cluster.shared(party) for party in cluster.parties}
    assert rows["ann"] == rows["bob"] == rows["cyd"]
    train, held_out = rows["ann"]
    assert {*train, *held_out} == plain_join(cluster.held)
    assert len(train) + len(held_out) == len(plain_join(cluster.held))
    assert len(held_out) == round(0.2 * len(plain_join(cluster.held)))


@pytest.mark.parametrize("align", ["tokens", "ecdh"])
def test_the_shared_rows_are_those_of_a_plain_join_and_can_be_trained_on(tmp_path, align):
    with firms(tmp_path / "run", align) as cluster:
        cluster.serve("--json", str(tmp_path / "run.json"))
        reports = {}
        for party in cluster.parties:
            reports[party] = tmp_path / f"{party}.json"
            words = ("align", cluster.home / party / "party.toml", "--json", reports[party])
            cluster._start(party, Started, *words)
        said = {party: cluster[party].expect(0, "What this showed to whom:") for party in cluster.parties}
        check_rows(cluster)
        shared = len(plain_join(cluster.held))
        for party in cluster.parties:
            found = json.loads(reports[party].read_text())["alignment"]
            assert found["rows"] == {"ann": 270, "bob": 240, "cyd": 210}
            assert found["shared_rows"] == shared
            assert found["train"] + found["held_out"] == shared
            assert found["bytes_sent"] > 0
        assert "5 rows with a duplicate id (data rows 241, 242, 243, 244, 245)" in said["bob"]
        for party in cluster.parties:
            cluster.join(party)
        cluster.finish()
        assert json.loads((tmp_path / "run.json").read_text())["alignment"]["shared_rows"] == shared


@pytest.mark.parametrize("victim", ["server", "ann", "cyd"])
def test_alignment_that_is_killed_anywhere_goes_on_with_the_same_commands(tmp_path, victim):
    with ExitStack() as stack:
        runs = [stack.enter_context(firms(tmp_path / str(messages))) for messages in (1, 5, 9)]
        for cluster, messages in zip(runs, (1, 5, 9), strict=True):
            kept = cluster.home / "server" / "alignments"
            cluster.start()
            until(lambda kept=kept, n=messages: len(list(kept.glob("*/*-bulletin-*"))) >= n, f"{messages} messages")
            cluster[victim].kill()
            if victim == "server":
                cluster.serve()
            else:
                cluster.join(victim)
        for cluster in runs:
            cluster.finish()
            check_rows(cluster)


def test_a_party_whose_data_has_changed_since_is_refused_with_the_reason(tmp_path):
    with running(tmp_path / "run", epochs=2) as cluster:
        cluster.start()
        cluster.finish()
        data = cluster.home / "bob" / "data.csv"
        data.write_text(data.read_text().replace(".", ".1", 1))
        cluster.join("bob").expect(1, "the data of this party has changed since its rows were aligned", "a new name")


def test_a_party_that_was_aligned_by_a_server_that_lost_it_is_refused_and_told_what_to_do(tmp_path):
    with running(tmp_path / "run", epochs=2, peer_timeout_seconds=15.0) as cluster:
        cluster.serve()
        for party in cluster.parties:
            cluster._start(party, Started, "align", cluster.home / party / "party.toml")
        for party in cluster.parties:
            cluster[party].expect(0)
        cluster["server"].kill()
        cluster.lose_state("server")
        cluster.serve()
        until(lambda: cluster.status().run == "first", "the server runs")
        said = "give the run a new name at every side"
        cluster.join("ann").expect(1, "this server has seen no alignment", said)
        cluster["server"].kill()
        cluster.change('name = "first"', 'name = "second"')
        cluster.start()
        cluster.finish()


def test_who_waits_for_a_party_that_was_refused_is_told_why(tmp_path):
    with running(tmp_path / "run", epochs=2) as cluster:
        settings = cluster.home / "bob" / "party.toml"
        settings.write_text(settings.read_text().replace('id = "id"', 'ignore = "id"'))
        cluster.serve()
        cluster.join("ann", "--wait", 8)
        until(lambda: cluster.statuses()["ann"].aligning, "ann has come")
        cluster.join("bob", "--wait", 8)  # whoever posts second is refused
        said = {party: cluster[party].wait() for party in cluster.parties}
        assert set(said.values()) == {1}
        for party in cluster.parties:
            assert "set data.id at every party or at none" in " ".join(cluster[party].text.split())
        assert "refused: party" in cluster["server"].text


def test_who_waits_for_a_party_with_other_settings_is_told_the_setting_and_the_server_says_it_too(tmp_path):
    with running(tmp_path / "run", epochs=2) as cluster:
        other = cluster.home / "other.toml"
        other.write_text((cluster.home / "run.toml").read_text().replace("epochs = 2", "epochs = 3"))
        cluster.serve()
        cluster.join("ann", "--wait", 14)
        until(lambda: cluster.statuses()["ann"].aligning, "ann has come")
        why = "training.epochs is 3 at party 'bob', 2 when run 'first' began"
        cluster.join("bob", "--run", other).expect(1, why)
        cluster["ann"].expect(1, f"so far: bob was refused: {why}")
        assert f"server: waiting for 10 s so far: bob was refused: {why}" in cluster["server"].text
        assert cluster["server"].code is None


def test_features_are_written_once_and_used_again(tmp_path):
    with running(tmp_path / "run", epochs=3000) as cluster:
        cluster.start()
        cluster.await_step(20)
        blocks = sorted((cluster.home / "bob" / RUN / "state" / "blocks").rglob("*"))
        written = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in blocks}
        assert any(path.name == "values" for path in blocks)
        encoder = encoder_from_json((cluster.home / "bob" / RUN / "state" / "encoder.json").read_bytes())
        facts = json.loads(next(path for path in blocks if path.name == "facts.json").read_text())
        assert len(encoder.names) == facts["width"]
        cluster["bob"].kill()
        served = cluster.statuses()["bob"].served
        cluster.join("bob")
        cluster.await_step(served + 20, "bob")
        assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in blocks} == written


def test_ids_that_have_nothing_in_common_are_an_error_that_names_likely_causes(tmp_path):
    with running(tmp_path / "run", epochs=2) as cluster:
        data = cluster.home / "bob" / "data.csv"
        header, *lines = data.read_text().splitlines()
        data.write_text("\n".join([header, *(f"user-{line}" for line in lines)]) + "\n")
        cluster.start()
        for party in cluster.parties:
            cluster[party].expect(1, "share no rows", "[data.ids]", "a new name")


def test_a_label_party_without_features_takes_part(tmp_path):
    with running(tmp_path / "run", ("ann", "bob", "cyd"), epochs=3) as cluster:
        settings = cluster.home / "ann" / "party.toml"
        settings.write_text(settings.read_text() + "columns = []\n")
        cluster.serve()
        for party in cluster.parties:
            cluster.join(party)
        cluster.finish()
        last = json.loads((cluster.home / "ann" / RUN / "history.json").read_text())[-1]
        assert last["test_metric"] > 0.6


def with_canaries(cluster):
    """Values that would be found wherever they went: an id, a feature and a label of every row."""
    for party in cluster.parties:
        path = cluster.home / party / "data.csv"
        header, *lines = path.read_text().splitlines()
        rows = [line.split(",") for line in lines]
        for row in rows:
            row[0] = f"{CANARY}-{row[0]}"
        rows[0][1] = str(FEATURE)
        if party == "ann":
            for row in rows:
                row[3] = str(LABEL + 1000 * (row[3] == "yes"))
        path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    cluster.change("label_party", 'task = "regression"\nlabel_party')


def canaries():
    """How they would look in bytes."""
    numbers = [FEATURE, LABEL, LABEL + 1000]
    packed = [np.array([number], kind).tobytes() for number in numbers for kind in ("<f8", "<f4")]
    return [CANARY.encode(), *(str(number).encode() for number in numbers), *packed]


def labels_as_numbers(cluster):
    """Some of the label party's labels in the form in which they are sealed."""
    with np.load(cluster.home / "ann" / RUN / "state" / "alignment") as found:
        rows = found["train"]
    lines = (cluster.home / "ann" / "data.csv").read_text().splitlines()[1:]
    labels = np.array([float(lines[row].split(",")[3]) for row in rows])
    numbers = fit_labels("regression", labels).transform(labels)
    return [numbers[at : at + 4].astype("<f8").tobytes() for at in (0, 100, 200)]


@pytest.mark.parametrize("align", ["tokens", "ecdh"])
@pytest.mark.parametrize("lines", [(), ("--plain",)], ids=["TLS", "plain"])
def test_no_id_feature_or_label_is_on_the_wire_in_a_log_or_at_the_server(tmp_path, align, lines):
    """Plain lines are the harder test: what TLS would hide is there to be read."""
    with running(tmp_path / "run", epochs=2) as cluster, ExitStack() as stack:
        with_canaries(cluster)
        cluster.change("task =", f'align = "{align}"\ntask =')
        proxy = Proxy(cluster.port)
        stack.callback(proxy.close)
        proxy.recording = []
        for party in cluster.parties:
            cluster.through(party, proxy.port)
        cluster.start(*lines)
        cluster.finish()
        recorded = b"".join(proxy.recording)
        places = {
            "the recording": recorded,
            **{str(path): path.read_bytes() for path in cluster.home.glob("*.log")},
            **{str(path): path.read_bytes() for path in (cluster.home / "server").rglob("*") if path.is_file()},
        }
        assert len(recorded) > 50_000
        if lines:
            assert b"fdml.Exchange" in recorded, "plain lines can be read"
        for where, content in places.items():
            for canary in [*canaries(), *labels_as_numbers(cluster)]:
                assert canary not in content, f"{canary!r} is in {where}"
        kept = b"".join(path.read_bytes() for path in (cluster.home / "ann").rglob("*") if path.is_file())
        assert CANARY.encode() in kept, "a search that finds nothing anywhere would prove nothing"


def test_a_party_killed_while_it_blinds_sends_only_what_the_server_lacks(tmp_path):
    """30,000 ids are 4 pieces of points; each set is 960 kB."""
    with running(tmp_path / "run", ("ann", "bob"), 30_000) as cluster:
        cluster.change('label_party = "ann"', 'label_party = "ann"\nalign = "ecdh"')
        cluster.serve()
        report = tmp_path / "ann.json"
        for party in cluster.parties:
            cluster._start(party, Started, "align", cluster.home / party / "party.toml", "--json", report)
        third = "*bulletin-blinded_ids-0-1-0.2"
        until(lambda: any((cluster.home / "server").rglob(third)), "three pieces of ann's points at the server")
        cluster["ann"].kill()
        cluster["bob"].kill()
        for party in reversed(cluster.parties):
            to = tmp_path / f"{party}.json"
            cluster._start(party, Started, "align", cluster.home / party / "party.toml", "--json", to)
        for party in cluster.parties:
            cluster[party].expect(0)
        found = json.loads(report.read_text())["alignment"]
        assert found["shared_rows"] == 30_000
        assert found["bytes_sent"] < 1.45e6
