"""Whether a party that says hello may go on here: its state and its rows must be those that the server knows."""

from __future__ import annotations

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import Hello
from fdml.server.alignment import AlignmentPhase
from fdml.server.run_state import RunState
from fdml.settings import RunSettings


def check_position(party: str, hello: Hello, state: RunState) -> None:
    """Refuse a party whose saved state does not fit the server's."""
    if hello.incarnation < state.incarnation(party):
        return  # the state refuses it
    coordinator = state.coordinator
    served, safe = (-1, -1) if coordinator is None else (coordinator.served(party), coordinator.checkpointed(party))
    remedy = "put back the newest state of both, or give the run a new name at every side"
    if hello.done > served:
        raise MessageRefused(
            f"party {party!r} goes on at step {hello.done + 1}, but the server knows it only up to step {served}: "
            f"the server was started over or has lost its state; {remedy}",
            Refusal.MISMATCH,
        )
    if hello.done < safe:
        raise MessageRefused(
            f"party {party!r} goes on at step {hello.done + 1}, but has had a checkpoint after step {safe}: "
            f"it was started over or has lost its state; {remedy}",
            Refusal.MISMATCH,
        )


def check_rows(party: str, hello: Hello, alignment: AlignmentPhase, settings: RunSettings) -> None:
    """Refuse a party whose rows are not those that this server has found, or not so many.

    The first party to join decides for all how many rows the run has, so its word is not enough.
    """
    if hello.alignment_hash != alignment.digest:
        found = "no alignment" if alignment.digest is None else "another one"
        raise MessageRefused(
            f"party {party!r} comes with rows that were aligned before, but this server has seen {found}: one of them "
            f"was started over; give the run a new name at every side",
            Refusal.MISMATCH,
        )
    agreed = alignment.split(settings.evaluation.holdout, settings.training.seed)
    if agreed is not None and (hello.rows, hello.held_out) != (agreed.train, agreed.test):
        raise MessageRefused(
            f"party {party!r} has {hello.rows} rows and {hello.held_out} held out; the server has found {agreed.train} "
            f"and {agreed.test} that all parties share: check its files, then give the run a new name at every side",
            Refusal.MISMATCH,
        )
