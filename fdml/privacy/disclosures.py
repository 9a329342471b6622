"""What each way of finding the shared rows shows, and to whom."""

from __future__ import annotations

from fdml.settings.choices import Align

_RESULT = (
    "Every party learns which of its own ids all the others hold: the shared rows themselves are not hidden.",
    "Every party and the server learn how many rows each party has and how many all share.",
)

DISCLOSURES: dict[Align, tuple[str, ...]] = {
    "tokens": (
        "The server gets one token per row, a hash under a key that it does not have; it cannot try out ids.",
        "The server sees which tokens any parties have in common, but not which ids or lines of a file they stand for.",
        *_RESULT,
        "This holds only while the server and no party work together: with the key, whoever has the tokens can try "
        "out ids and so learn which ids every party holds.",
    ),
    "ecdh": (
        "The server gets one blinded point per row and cannot try out ids, not even together with a party.",
        "The server sees which points any parties have in common, but not which ids or lines of a file they stand for.",
        "The other parties get this party's points as they are passed round; they cannot try out ids either.",
        *_RESULT,
        "A party that works together with the server learns which of its own ids each other party holds, also those "
        "that not all hold.",
        "All parties are taken to follow the protocol: one that puts guessed ids among its own learns whether the "
        "others hold them.",
    ),
}
"""Plain sentences for the documentation and for whoever is about to align."""

POINTERS: tuple[str, ...] = (
    "The server gets the different keys that lead to each party, hashed under a context of that party's own, and sees "
    "how many that party holds; it learns neither how many rows have a key nor which.",
    "Every other party learns to which of its rows each row of the run points: how many rows have the same key, which "
    "of them are held out, and, where unmatched rows are kept, which rows it does not hold.",
    "The label party learns which of its keys each other party holds.",
)
"""The same where rows of the label party point to those of the others (`[keys]`, or `unmatched = "keep"`)."""
