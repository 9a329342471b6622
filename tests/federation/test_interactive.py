"""A party, the server and whole runs from Python, as a notebook would call them."""

import asyncio
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings

import pandas as pd
import polars as pl
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fdml
from fdml.errors import DataError, FdmlError, SettingsError
from fdml.events import EpochDone, Finished, Remark
from fdml.federation.interactive import party_file
from fdml.models.bundle import Bundle
from fdml.storage.arrays import hash_arrays
from tests.federation.folders import EPOCHS, RUN, serving, together, write_run


def process_settings():
    """What belongs to whoever runs the process."""
    return {
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)},
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "filters": list(warnings.filters),
        "logging": (logging.root.level, list(logging.root.handlers), logging.lastResort),
        "threads": [(each["filepath"], each["num_threads"]) for each in threadpool_info()],
        "switching": sys.getswitchinterval(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "environment": dict(os.environ),
    }


def joined(home, party, server, **options):
    return lambda: fdml.join(home / "run.toml", party, plain=True, server=server.address, **options)


@pytest.fixture
def home(tmp_path):
    write_run(tmp_path / "run")
    return tmp_path / "run"


@threadpool_limits.wrap(
    limits=2, user_api="blas"
)  # a limit of 1 that is left behind would not be seen under the tests'
def test_two_parties_in_threads_train_and_the_process_is_left_as_it_was(home, capsys):
    before = process_settings()
    events = []
    with serving(home / "run.toml") as server:
        ann, _ = together(
            joined(home, "ann", server, on_event=events.append, progress=False),
            joined(home, "bob", server, progress=False),
        )
    assert hash_arrays(Bundle.load(ann.bundle).parameters) == ann.model_hash
    assert sum(isinstance(event, EpochDone) for event in events) == EPOCHS
    assert isinstance(events[-1], Finished)
    assert process_settings() == before
    assert capsys.readouterr() == ("", "")


def test_frames_train_the_models_that_files_do(tmp_path):
    """A pandas and a polars frame; party.toml names no file, and a second start with the same rows goes on."""
    models = []
    for name in ("files", "frames"):
        home = tmp_path / name
        write_run(home, group_key="ab" * 32)
        frames = {"ann": {}, "bob": {}}
        if name == "frames":
            frames = {
                party: {"data": read(home / party / "data.csv")}
                for party, read in (("ann", pd.read_csv), ("bob", pl.read_csv))
            }
            for party in frames:
                (home / party / "data.csv").unlink()
                settings = home / party / "party.toml"
                settings.write_text(settings.read_text().replace('path = "data.csv"\n', ""))
        with serving(home / "run.toml") as server:
            found = together(*(joined(home, party, server, progress=False, **given) for party, given in frames.items()))
        models.append([each.model_hash for each in found])
    assert models[0] == models[1]
    with pytest.raises(SettingsError, match=r"no rows are named; set data\.path to a file or folder, or data\.query"):
        fdml.join(tmp_path / "frames" / "run.toml", "ann", plain=True, server="127.0.0.1:1", progress=False)


def test_test_rows_need_training_rows(home):
    with pytest.raises(SettingsError, match=r"test_data is given without data"):
        fdml.join(home / "run.toml", "ann", test_data=pd.DataFrame({"id": [1]}), plain=True, progress=False)


def test_progress_is_lines_where_there_is_no_terminal(home, capsys):
    with serving(home / "run.toml") as server:
        together(joined(home, "ann", server), joined(home, "bob", server, progress=False))
    said = capsys.readouterr().err
    assert f"ann: {EPOCHS} of {EPOCHS} epochs" in said
    assert "ann: finished" in said
    assert "bob: " not in said


def test_an_interrupted_party_says_how_to_go_on_and_ends_with_the_same_model(home, tmp_path, capsys):
    write_run(tmp_path / "whole", group_key="ab" * 32)
    with serving(tmp_path / "whole" / "run.toml") as server:
        whole = together(*(joined(tmp_path / "whole", party, server, progress=False) for party in ("ann", "bob")))

    write_run(home, group_key="ab" * 32)

    def interrupt(event):
        if isinstance(event, EpochDone):
            raise KeyboardInterrupt

    with serving(home / "run.toml") as server:
        other = threading.Thread(target=joined(home, "bob", server, progress=False), daemon=True)
        other.start()
        with pytest.raises(KeyboardInterrupt) as stopped:
            joined(home, "ann", server, on_event=interrupt)()
        assert "the same call of fdml.join goes on" in capsys.readouterr().err
        assert "the same call of fdml.join" in stopped.value.__notes__[0]
        events = []
        again = joined(home, "ann", server, on_event=events.append, progress=False)()
        other.join(60)
    assert again.resumed_at > 0
    assert again.model_hash == whole[0].model_hash


# The server


def test_the_server_serves_where_an_event_loop_runs(home):
    """As in a notebook, whose cells run inside one."""
    port = home / "port"

    async def cell():
        return fdml.serve(home / "federation.toml", home / "run.toml", plain=True, port_file=str(port), progress=False)

    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(cell())), daemon=True)
    thread.start()
    address = address_in(port)
    together(
        *(
            lambda party=party: fdml.join(home / "run.toml", party, plain=True, server=address, progress=False)
            for party in ("ann", "bob")
        )
    )
    thread.join(60)
    assert found[0].alignment.rows == {"ann": 120, "bob": 120}


def address_in(port_file):
    deadline = time.monotonic() + 60
    while not port_file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return f"127.0.0.1:{port_file.read_text().strip()}"


@pytest.fixture
def interruptible():
    """As at a terminal: what a shell starts in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_server_ends_and_says_how_to_go_on(home, capsys):
    """The signal reaches this thread alone, as Ctrl-C does; the server is in another."""
    before = process_settings()
    port = home / "port"

    def interrupt():
        address_in(port)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        fdml.serve(home / "federation.toml", home / "run.toml", plain=True, port_file=port)
    said = capsys.readouterr().err
    assert "serving run 'first' at 127.0.0.1:" in said
    assert "the same call of fdml.serve goes on from here" in said
    assert process_settings() == before
    assert not [each for each in threading.enumerate() if each.name.startswith("fdml-server")]


# A whole run


@pytest.mark.slow
def test_a_whole_run_returns_its_figures_and_hands_on_what_was_said(home, capsys, warm_starts):
    events = []
    found = fdml.simulate(home / "run.toml", plain=True, on_event=events.append)
    assert found["alignment"]["shared_rows"] == 120
    assert [row["epoch"] for row in found["history"]] == list(range(1, EPOCHS + 1))
    assert {event.party for event in events if isinstance(event, Remark)} == {"server", "ann", "bob"}
    assert "[ann] " in capsys.readouterr().err


def test_fresh_is_gone_and_the_way_out_is_named(home):
    for call in (fdml.join, fdml.serve, fdml.simulate):
        with pytest.raises(SettingsError, match=r"nothing is overwritten: give the run a new name in run\.toml"):
            call(home / "run.toml", fresh=True)


# Which party


def test_a_party_is_named_or_its_file_is(home):
    wanted = home / "ann" / "party.toml"
    run = home / "run.toml"
    assert party_file(wanted, None) == wanted
    assert party_file(run, "ann") == wanted
    assert party_file(run, wanted) == wanted
    assert party_file(run, str(wanted)) == wanted


def test_a_party_alone_has_its_file_beside_the_run(home):
    text = (home / "ann" / "party.toml").read_text().replace("../federation.toml", "federation.toml")
    (home / "ann" / "party.toml").unlink()
    (home / "party.toml").write_text(text)
    assert party_file(home / "run.toml", "ann") == home / "party.toml"
    with pytest.raises(SettingsError, match=r"is of party 'ann', not of 'cid'"):
        party_file(home / "run.toml", "cid")


def test_the_file_of_another_federation_is_refused(home, tmp_path):
    write_run(tmp_path / "other")
    with pytest.raises(SettingsError, match=r"is of the federation .*other.*federation\.toml', and .*; correct `fed"):
        party_file(home / "run.toml", tmp_path / "other" / "ann" / "party.toml")


def test_a_party_without_settings_is_told_where_they_should_be(home):
    with pytest.raises(SettingsError, match=r"there is no file .*cid.*party\.toml"):
        fdml.join(home / "run.toml", "cid", progress=False)


# Frames


def frame_of(home, party):
    """What the party's file holds."""
    return pd.read_csv(home / party / "data.csv", dtype={"id": str})


def test_settings_in_python_take_the_place_of_the_file(home):
    (home / "ann" / "party.toml").unlink()
    settings = {
        "align": {"max_rows": 1000},
        "data": {"id": "id", "label": "label"},
        "model": {"kind": "fm"},
        "threads": 1,
    }
    with serving(home / "run.toml") as server:
        ann, _ = together(
            joined(home, "ann", server, data=frame_of(home, "ann"), settings=settings, progress=False),
            joined(home, "bob", server, progress=False),
        )
    assert ann.bundle == home / "ann" / RUN / "model"
    assert len(Bundle.load(ann.bundle).parameters["theta"]) > 2, "a factorization machine has more than a linear model"


def test_another_frame_does_not_go_on_with_the_run_of_the_first(home):
    frame = frame_of(home, "ann")
    with serving(home / "run.toml") as server:
        first, _ = together(
            joined(home, "ann", server, data=frame, progress=False), joined(home, "bob", server, progress=False)
        )
    assert joined(home, "ann", server, data=frame, progress=False)().model_hash == first.model_hash
    with pytest.raises(FdmlError, match="changed"):
        joined(home, "ann", server, data=frame.assign(x=0.0), progress=False)()


def test_frames_and_settings_that_cannot_be_are_refused(home):
    run = home / "run.toml"
    with pytest.raises(SettingsError, match="test_data is given without data"):
        fdml.join(run, "ann", test_data=frame_of(home, "ann"))
    with pytest.raises(SettingsError, match="need the party's name"):
        fdml.join(home / "ann" / "party.toml", settings={})
    with pytest.raises(SettingsError, match="unknown setting 'modle'; did you mean 'model'"):
        fdml.join(run, "ann", settings={"modle": {}})
    with pytest.raises(DataError, match="data is a dict; give a pandas or polars frame"):
        fdml.join(run, "ann", data={"x": [1]}, plain=True, server="127.0.0.1:1")
