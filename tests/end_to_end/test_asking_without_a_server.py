"""Standing parties without a process for the server: predictions, pages and reports are those of a run over one."""

import json
import signal

import pytest

from fdml.federation.run_record import read_record
from fdml.federation.run_report import run_report
from fdml.federation.watch import Watch
from tests.end_to_end.cluster import until
from tests.end_to_end.topologies import PARTIES, topology

pytestmark = pytest.mark.slow
KINDS = ("host", "mesh", "tunnel")
THREE = PARTIES[:3]
FIGURES = ("What joint training brought", "Calibration and lift")
POLICY = '[policy]\naccept = "policy"\n'


def evaluated(run, out):
    """What `fdml evaluate` finds of the held-out rows."""
    run.ask("evaluate", "--json", out)
    found = json.loads(out.read_text())
    return {key: found[key] for key in ("rows", "scored", "loss", "figures")}


def test_predictions_are_those_over_a_server_to_the_bit(tmp_path):
    found = {}
    for kind in ("server", *KINDS):
        with topology(tmp_path / kind, kind, THREE) as run:
            run.run()
            run.stand_by()
            found[kind] = run.predict(tmp_path / f"{kind}.csv"), evaluated(run, tmp_path / f"{kind}.json")
    assert len(found["server"][0]["score"]) == 400
    assert set(found["server"][0]["answered"]) == {",".join(THREE)}
    for kind in KINDS:
        assert found[kind] == found["server"], kind


def test_a_standing_party_that_is_killed_in_a_run_goes_on_to_the_same_models(tmp_path):
    """Its session ends with it, the process of its run does not: both go on once it is back."""
    with topology(tmp_path / "calm", "server", THREE, epochs=60) as run:
        run.run()
        calm = run.parameters()
    with topology(tmp_path / "killed", "mesh", THREE, epochs=60) as run:
        for party in THREE:
            with (run.home / party / "party.toml").open("a") as file:
                file.write(POLICY)
        run.stand_by()
        until(lambda: all("stands by" in run[party].text for party in THREE), "all")
        started = run.start_command("run", run.home / "run.toml", "--party", run.home / "ann" / "party.toml")
        started.expect(0)
        until(lambda: run.has_served("first", 100), "step 100")
        run["bob"].send(signal.SIGKILL)
        run["bob"].wait()
        run.up("bob")
        until(lambda: all((run.home / party / "runs/first/serving").is_dir() for party in THREE), "all models")
        assert run.parameters() == calm
        assert len(run.predict(tmp_path / "out.csv")["score"]) == 400


def history(run, party):
    """The figures of every epoch in a party's own files, without times."""
    path = run.home / party / "runs/first/history.json"
    return without_seconds(json.loads(path.read_text())) if path.exists() else None


def without_seconds(found):
    if isinstance(found, list):
        return [without_seconds(each) for each in found]
    if isinstance(found, dict):
        return {key: without_seconds(value) for key, value in found.items() if key != "seconds"}
    return found


def report(run, party):
    """What the report of a run says of its figures."""
    made = run_report(read_record(run.home / party, party, "first"))
    return made.answer, [repr(each) for each in made.sections if each.title in FIGURES]


def page(run, party):
    """What the live page of a party shows of figures once the run is over."""
    watched = Watch(run.home / party / "party.toml", "first")
    watched.look()
    shown = watched.state()
    curves = {
        name: [(each["title"], point, value) for point, value in zip(each["epoch"], each["values"], strict=True)]
        for name, each in shown["curves"].items()
    }
    return {"sentence": shown["sentence"], "step": shown["step"], "steps": shown["steps"], "curves": curves}


def test_reports_and_pages_have_the_figures_of_a_run_over_a_server(tmp_path):
    found = {}
    for kind in ("server", "host", "mesh"):
        with topology(tmp_path / kind, kind, THREE) as run:
            run.run()
            found[kind] = {party: (history(run, party), report(run, party), page(run, party)) for party in THREE}
    figures, said, shown = found["server"]["ann"]
    assert len(figures) == 3
    assert "joint training brought +0.291 AUC over ann alone" in said[0]
    assert len(said[1]) == len(FIGURES)
    assert len(shown["curves"]["test_metric"]) == 3
    for kind in ("host", "mesh"):
        assert found[kind] == found["server"], kind
