"""Parties at home, without rows: for decisions on runs."""

from __future__ import annotations

from dataclasses import replace

from fdml.federation.deciding import Decider
from fdml.federation.party_home import PartyHome
from fdml.federation.scaffold import write_keys
from fdml.protocol.run_messages import RunFacts
from fdml.protocol.signed_proposals import make_proposal
from fdml.settings import TrainingSettings

PARTIES = ("ann", "bob", "cid")


def write_homes(folder, *, rights="", party="", port=7443, keys=False):
    """federation.toml and a party.toml for each party, with these lines more."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = ", ".join(f'"{name}"' for name in PARTIES)
    text = f'name = "shop"\nserver = "127.0.0.1:{port}"\nparties = [{listed}]\n{rights}\n'
    (folder / "federation.toml").write_text(text)
    for name in PARTIES:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "party.toml").write_text(f'party = "{name}"\nfederation = "../federation.toml"\n{party}\n')
    if keys:
        write_keys(folder, "shop", PARTIES)
    return folder


def home_of(folder, name="bob", *, plain=True):
    return PartyHome.read(folder / name / "party.toml", plain=plain)


def run_of(home, name="first", **training):
    return home.federation.run(name=name, label_party="ann", training=TrainingSettings(**{"epochs": 3, **training}))


def facts_of(home, run=None, starter="ann", state="waiting", credentials=None, **changes):
    run = run or run_of(home)
    return replace(RunFacts(run.name, make_proposal(run, starter, credentials), starter, 1000.0, state), **changes)


def decider_of(home, now=None):
    return Decider(home) if now is None else Decider(home, lambda: now)
