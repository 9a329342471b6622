"""What is written for Prometheus is read by its own parser, and says nothing that the page does not."""

from prometheus_client.parser import text_string_to_metric_families

from fdml.monitor.prometheus import metrics_text

PARTY = {
    "name": "ann",
    "own": True,
    "state": "waiting",
    "step": 42,
    "rows_per_second": 2000,
    "awaited_seconds": 0.0,
    "waiting_share": 0.5,
    "waits_for": ["bob"],
    "waiting_seconds": 2.5,
    "waited_seconds": 12.5,
    "bytes_in": 1000,
    "bytes_out": 2000,
    "restarts": 1,
    "gone_seconds": 0,
    "stands_out": False,
    "stripe": "ccw",
}
STATE = {
    "run": 'fi"r\\st\n',
    "steps": 200,
    "step": 42,
    "seconds_left": 12.5,
    "parties": [PARTY, {**PARTY, "name": "bob", "state": "gone for 3 s", "gone_seconds": 3, "rows_per_second": None}],
    "refused": {"gap": 2},
    "curves": {"test_loss": {"values": [0.5, 0.25]}, "test_metric": {"values": [float("nan")]}},
    "lag": {"0": 40, "2": 2},
}


def families(state=STATE):
    return {each.name: each for each in text_string_to_metric_families(metrics_text(state))}


def values(name, label):
    return {sample.labels[label]: sample.value for sample in families()[name].samples}


def test_the_official_parser_reads_every_figure():
    found = families()
    (sample,) = found["fdml_run_steps_done"].samples
    assert (sample.value, sample.labels) == (42.0, {"run": STATE["run"]}), "whatever the run is called"
    assert values("fdml_party_waited_seconds", "party") == {"ann": 12.5, "bob": 12.5}
    assert values("fdml_party_received_bytes", "party") == {"ann": 1000.0, "bob": 1000.0}
    assert values("fdml_party_up", "party") == {"ann": 1.0, "bob": 0.0}
    assert values("fdml_steps_by_lag", "lag") == {"0": 40.0, "2": 2.0}
    assert values("fdml_refused_messages", "reason") == {"gap": 2.0}
    assert found["fdml_held_out_loss"].samples[0].value == 0.25


def test_what_only_grows_is_a_counter_and_names_follow_the_conventions():
    for name, family in families().items():
        assert name.startswith("fdml_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge")
        assert all(sample.name.endswith("_total") for sample in family.samples) == (family.type == "counter")


def test_what_is_not_known_is_left_out():
    found = families()
    assert "fdml_held_out_metric" not in found, "it is not defined"
    assert "fdml_train_loss" not in found
    assert set(values("fdml_party_rows_per_second", "party")) == {"ann"}


def test_a_run_that_nothing_is_known_of_has_its_steps_alone():
    empty = {**STATE, "parties": [], "refused": {}, "curves": {}, "lag": {}, "seconds_left": None}
    assert set(families(empty)) == {"fdml_run_steps", "fdml_run_steps_done"}
