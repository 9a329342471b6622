"""What travels, field by field: the table of docs/privacy.md is that of the wire."""

import re
from pathlib import Path

from fdml.protocol import wire_pb2 as pb

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
ENVELOPES = {"FromParty", "FromServer", "AlignmentMessage", "Relayed"}
"""They hold one of the other messages."""
STORED = {"Record"}
"""In the server's own log."""


def listed(text):
    """By message, the fields that the page names."""
    section = text.split("## Every message\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", section, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a message has two rows"
    return {name: re.findall(r"\w+", fields) for name, fields in rows}


def test_the_page_about_privacy_names_every_message_and_every_field():
    on_the_wire = {
        name: [field.name for field in message.fields]
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
        if name not in ENVELOPES | STORED
    }
    assert listed(PAGE.read_text()) == on_the_wire


def test_an_envelope_holds_nothing_of_its_own():
    for name in ENVELOPES:
        envelope = pb.DESCRIPTOR.message_types_by_name[name]
        assert all(field.message_type is not None for field in envelope.fields)
        assert [each.name for each in envelope.oneofs] == ["content"]
