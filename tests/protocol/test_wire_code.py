"""wire_pb2.py and wire_pb2.pyi are what `make proto` makes of wire.proto, and run with every protobuf since 5.26."""

import ast
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fdml.protocol import wire_pb2 as pb

HERE = Path(pb.__file__).parent
TYPES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


def tokens(proto: str) -> list[str]:
    """What a description says, without comments and white space."""
    return re.findall(r'"[^"]*"|\w+|[^\w\s]', re.sub(r"//[^\n]*", "", proto))


def written(message: Descriptor) -> str:
    """The message as wire.proto would describe it. What this does not know comes out differently, and fails."""
    lines, choice = [], None
    for field in message.fields:
        within = field.containing_oneof
        if within is not None and within.name.startswith("_"):
            within = None
        if choice is not None and choice != within:
            lines.append("}")
        if within is not None and choice != within:
            lines.append(f"oneof {within.name} {{")
        choice = within
        lines.append(f"{kind(field)} {field.name} = {field.number};")
    return "\n".join([f"message {message.name} {{", *lines, "}" if choice is not None else "", "}"])


def kind(field: FieldDescriptor) -> str:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields
        return f"map<{kind(key)}, {kind(value)}>"
    name = TYPES[field.type] if entry is None else entry.name
    if is_repeated(field):
        return f"repeated {name}"
    hidden = field.containing_oneof is not None and field.containing_oneof.name.startswith("_")
    return f"optional {name}" if hidden else name


def is_repeated(field: FieldDescriptor) -> bool:
    """`label` is going, and protobuf 5 has no `is_repeated`."""
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED


def described() -> str:
    messages = pb.DESCRIPTOR.message_types_by_name.values()
    return "\n".join(['syntax = "proto3";', f"package {pb.DESCRIPTOR.package};", *map(written, messages)])


def test_the_code_is_made_of_the_description():
    assert tokens(described()) == tokens((HERE / "wire.proto").read_text()), "run `make proto`"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("uint32 width = 5;", "uint32 width = 6;"),
        ("fixed64 mask_id = 3;", "uint64 mask_id = 3;"),
        ("optional bytes test = 2;", "bytes test = 2;"),
        ("repeated string parties = 1;", "string parties = 1;"),
        ("map<string, uint64> refused", "map<string, uint32> refused"),
        ("message StatusQuery {}", ""),
        ("bytes sealed = 2;", "bytes closed = 2;"),
        ("bytes sealed = 2;", "bytes sealed = 2; bytes more = 3;"),
        ("package fdml;", "package other;"),
    ],
)
def test_a_changed_description_does_not_fit(old, new):
    given = (HERE / "wire.proto").read_text()
    assert old in given
    assert tokens(described()) != tokens(given.replace(old, new, 1))


def test_the_stubs_name_the_same_fields():
    module = ast.parse((HERE / "wire_pb2.pyi").read_text())
    slots = {
        node.name: ast.literal_eval(part.value)
        for node in module.body
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name) and part.targets[0].id == "__slots__"
    }
    assert slots == {
        name: tuple(field.name for field in message.fields)
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }


def test_the_code_runs_with_every_protobuf():
    """Newer protoc's code refuses a protobuf older than itself, and warns of one that is newer by a major version."""
    code = (HERE / "wire_pb2.py").read_text()
    assert "runtime_version" not in code
    assert "# Protobuf Python Version: 5.26" in code
