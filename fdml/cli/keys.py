"""fdml keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fdml.cli.output import echo, stderr, stdout
from fdml.errors import SettingsError
from fdml.federation import key_requests
from fdml.federation.authority_folder import AuthorityFolder
from fdml.federation.certificates import DAYS
from fdml.federation.key_facts import KeyFacts, key_facts, members_of
from fdml.federation.key_files import REVOKED, members_table
from fdml.federation.key_requests import MemberKeys, member_keys, read_request
from fdml.monitor.terminal import print_line
from fdml.protocol.certificates import fingerprint, fingerprint_of
from fdml.storage.atomic import PUBLIC, write_file

keys = typer.Typer(
    help="Make keys where they are used, sign, renew and revoke certificates. A private key never leaves its folder.",
    no_args_is_help=True,
)

MemberArgument = Annotated[Path, typer.Argument(help="A party's party.toml; for the server the federation.toml.")]
AuthorityOption = Annotated[Path, typer.Option("--authority", help="The authority's folder.")]
_AUTHORITY = Path("authority")


@keys.command()
def request(member: MemberArgument) -> None:
    """At a party or the server: make a key, and a request for its certificate that goes to whoever signs."""
    found = member_keys(member)
    _print_request(found, key_requests.request(found))


@keys.command()
def renew(
    member: MemberArgument,
    new_key: Annotated[
        bool,
        typer.Option("--new-key", help="For a new key: it changes [members] in federation.toml."),
    ] = False,
) -> None:
    """At a party or the server: ask for a new certificate, in the middle of a run too.

    The old key and certificate go on until the new certificate is installed. For the same key nothing else changes:
    the others need not do anything.
    """
    found = member_keys(member)
    _print_request(found, key_requests.renew(found, new_key=new_key))


@keys.command()
def sign(
    requests: Annotated[list[Path], typer.Argument(help="The members' *.request.pem files.")],
    authority: AuthorityOption = _AUTHORITY,
    days: Annotated[int, typer.Option(min=1, help="How long the certificates are good.")] = DAYS,
    yes: Annotated[bool, typer.Option("--yes", help="The fingerprints were compared: do not ask.")] = False,
) -> None:
    """At whoever keeps the authority: sign requests, after their fingerprints were compared by another way.

    Makes the authority on first use. Writes a *.certificate.pem beside each request, to be sent back, and prints the
    table of members for federation.toml.
    """
    asked = [(path, *read_request(path)) for path in requests]
    signer = _authority(authority, asked[0][1].federation)
    for path, identity, key in asked:
        signer.check(identity, key)
        own, before = fingerprint_of(key), signer.key_before(identity)
        remark = "" if before in (None, own) else f"  ANOTHER KEY than before ({before})"
        print_line(stderr, f"{path}: {identity.role} {identity.name!r} of {identity.federation!r}\n  {own}{remark}")
    if not yes and not typer.confirm("Does each member read the same fingerprint to you, by phone?", err=True):
        raise SettingsError("nothing was signed; ask for new requests and compare again")
    for path, identity, key in asked:
        written = path.with_name(path.name.removesuffix(".pem").removesuffix(".request") + ".certificate.pem")
        write_file(written, signer.sign(identity, key, days), mode=PUBLIC)
        print_line(stderr, f"signed for {days} days: send {written} back to {identity.name!r}")
    echo("\n" + members_table(signer.members()).rstrip())


@keys.command()
def install(
    member: MemberArgument,
    certificate: Annotated[Path, typer.Argument(help="The *.certificate.pem that came back.")],
) -> None:
    """At a party or the server: put a signed certificate in place. It must be for this member and its key."""
    found = member_keys(member)
    placed = key_requests.install(found, certificate)
    echo(f"{found.identity.name}: {fingerprint(placed)}, good until {placed.not_valid_after_utc:%Y-%m-%d}")


@keys.command()
def revoke(
    names: Annotated[list[str], typer.Argument(help="Members whose certificates are no longer good.")],
    authority: AuthorityOption = _AUTHORITY,
) -> None:
    """At whoever keeps the authority: revoke all certificates of members, say after a key was stolen.

    Writes the signed list revoked.pem. Copied into the keys folder of the server and of every party, it holds within
    a second, also for a run that goes on.
    """
    signer = AuthorityFolder(authority)
    for name in names:
        count = len(signer.revoke(name))
        echo(f"{name}: {count} certificate{'' if count == 1 else 's'} revoked")
    echo(f"put {authority / REVOKED} into the keys folder of the server and of every party")


@keys.command()
def show(
    paths: Annotated[
        list[Path],
        typer.Argument(help="party.toml, federation.toml, folders of keys or of an authority, .pem files."),
    ],
) -> None:
    """Print names, fingerprints and how long certificates are good."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("member", "federation", "good until", "state", "fingerprint of its key"):
        table.add_column(heading, no_wrap=True, overflow="ignore")
    for facts in (each for path in paths for each in key_facts(path)):
        federation = "-" if facts.identity is None else facts.identity.federation
        until = "-" if facts.until is None else f"{facts.until:%Y-%m-%d}"
        table.add_row(facts.name, federation, until, facts.state, facts.fingerprint)
    stdout.print(table, soft_wrap=True)


@keys.command()
def members(
    paths: Annotated[
        list[Path], typer.Argument(help="An authority's folder, or certificates, requests or keys folders of all.")
    ],
) -> None:
    """Print the table of members for federation.toml: the fingerprint of every member's key."""
    facts: list[KeyFacts] = [each for path in paths for each in key_facts(path)]
    echo("\n" + members_table(members_of(facts)).rstrip())


def _authority(path: Path, federation: str) -> AuthorityFolder:
    if AuthorityFolder.is_one(path):
        return AuthorityFolder(path)
    made = AuthorityFolder.make(path, federation)
    print_line(
        stderr, f"made {path}, the authority of {federation!r}: keep it apart, best offline\n  {made.fingerprint}"
    )
    return made


def _print_request(member: MemberKeys, own: str) -> None:
    echo(
        f"send {member.request_path} to whoever keeps the authority of {member.identity.federation!r}; compare by phone"
    )
    echo(f"  {own}")
