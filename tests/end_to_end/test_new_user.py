"""The way of a new user: three terminals, a server and two parties, each with a CSV file of its own."""

import shutil

import numpy as np
import pytest

from benchmarks.ports import reserved_port
from fdml.models.bundle import Bundle
from tests.end_to_end.cluster import RUN, Started, Terminal, until, write_csv

pytestmark = pytest.mark.slow
EPOCHS = 150
PARTIES = ("store", "browser")


def own_files(folder):
    """What the two companies have: other columns, other orders, other names for the id."""
    chance = np.random.default_rng(5)
    people = 900
    age, visits = chance.integers(18, 80, people), chance.poisson(4, people)
    city, hours = chance.choice(["Oslo", "Rome", "Bern"], people), chance.normal(40, 9, people).round(2)
    bought = np.where((age > 45).astype(int) + (city == "Bern") + (hours > 42) >= 2, "yes", "no")
    customer = np.array([f"c{number:04}" for number in range(people)])
    store = {"customer": customer, "age": age, "visits": visits, "bought": bought}
    browser = {"user": customer, "city": city, "hours": hours}
    write_csv(folder / "store" / "sales.csv", store, chance.permutation(people))
    write_csv(folder / "browser" / "sessions.csv", browser, chance.permutation(people))


def say_in(path, old, new):
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A run made by `fdml new`, with the companies' own files in place of the examples."""
    home = tmp_path_factory.mktemp("user") / "shop"
    with reserved_port() as port:
        yield made(home, f"127.0.0.1:{port}")


def made(home, address):
    new = Terminal(home.parent / "new.log", "new", home, "--parties", "store,browser", "--server", address)
    said = new.expect(0, "every one in a terminal of its own")
    for command in (
        f"serve {home}/federation.toml --run {home}/run.toml",
        f"join {home}/store/party.toml",
        f"join {home}/browser/party.toml",
    ):
        assert f"fdml {command}" in said, "it says what to type"
    own_files(home)
    say_in(home / "store" / "party.toml", 'path = "data.csv"', 'path = "sales.csv"')
    say_in(home / "store" / "party.toml", 'id = "user_id"', 'id = "customer"')
    say_in(home / "store" / "party.toml", 'label = "income"', 'label = "bought"')
    say_in(home / "browser" / "party.toml", 'path = "data.csv"', 'path = "sessions.csv"')
    say_in(home / "browser" / "party.toml", 'id = "user_id"', 'id = "user"')
    schedule = f"epochs = {EPOCHS}\nbatch_size = 100\nbatches_per_block = 1\nvalue_bits = 64\ncheckpoint_seconds = 0.3"
    say_in(home / "run.toml", 'epochs = "auto"', schedule)
    return home


def hash_said(text):
    return text[text.index("(hash ") :].split()[1].rstrip(")")


def three(home, kind, prefix):
    """The three commands, each in a terminal of its own."""
    return {
        "server": kind(
            home.parent / f"{prefix}-server.log", "serve", home / "federation.toml", "--run", home / "run.toml"
        ),
        "store": kind(home.parent / f"{prefix}-store.log", "join", home / "store" / "party.toml"),
        "browser": kind(home.parent / f"{prefix}-browser.log", "join", home / "browser" / "party.toml"),
    }


def aligned_by_hand(home):
    """`fdml align` before training, so that two trainings have the same order of rows."""
    server = Started(home.parent / "align-server.log", "serve", home / "federation.toml", "--run", home / "run.toml")
    aligning = [Started(home.parent / f"align-{name}.log", "align", home / name / "party.toml") for name in PARTIES]
    for each in aligning:
        each.expect(0, "900 900 0.0%", "720 rows to train on, 180 held out", "What this showed to whom")
    server.kill()


def test_three_terminals_one_party_killed_and_started_again_end_as_an_undisturbed_run(shop):
    aligned_by_hand(shop)
    calm = shop.parent / "calm"
    shutil.copytree(shop, calm)
    quiet = three(calm, Started, "calm")
    expected = {name: hash_said(quiet[name].expect(0)) for name in ("store", "browser")}
    quiet["server"].expect(0, "all parties have finished")

    terminals = three(shop, Terminal, "shop")
    try:
        until((shop / "browser" / RUN / "state" / "checkpoint.0").exists, "the browser has saved its state")
        terminals["browser"].kill()
        assert terminals["store"].code is None, "the others wait"
        terminals["browser"] = Terminal(shop.parent / "again.log", "join", shop / "browser" / "party.toml")
        said = {name: member.expect(0) for name, member in terminals.items()}
    finally:
        for member in terminals.values():
            if member.code is None:
                member.kill()
    assert "going on at step" in said["browser"]
    assert {name: hash_said(said[name]) for name in expected} == expected
    assert "all parties have finished" in said["server"]
    bundle = Bundle.load(shop / "browser" / RUN / "model")
    assert bundle.card.party == "browser"
    assert all(np.isfinite(array).all() for array in bundle.parameters.values() if array.dtype.kind == "f")
