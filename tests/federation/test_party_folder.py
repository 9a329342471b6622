import os
import stat
from dataclasses import replace

import numpy as np
import pytest
from cryptography import x509

from fdml.data.label_encoding import LabelEncoding
from fdml.errors import AlignmentError, SettingsError, StateCorrupt
from fdml.events import Evaluated
from fdml.experiments.in_memory import KEY
from fdml.federation.certificates import Authority
from fdml.federation.key_files import members_table, write_credentials
from fdml.federation.party_folder import PartyFolder
from fdml.federation.run_folder import MODEL
from fdml.models.bundle import Bundle
from fdml.models.calibration import Calibration
from fdml.models.registry import model_settings
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.effects import WriteBundle
from fdml.privacy.statement import Spent, Statement
from fdml.protocol.certificates import fingerprint
from fdml.protocol.messages import Metrics
from fdml.settings import run_hash
from fdml.storage.atomic import write_file
from tests.federation.folders import RUN, rename, write_run

REPORT = AlignmentReport("tokens", {"ann": 120, "bob": 120}, 120, 96, 24, 0.5)
SHARED = SharedRows(np.arange(96), np.arange(96, 120), b"d" * 32, KEY, REPORT)
SPENT = Spent("training rows", 2, None, 1e-5, "none")


@pytest.fixture
def home(tmp_path):
    write_run(tmp_path)
    return tmp_path


def folder_of(home, party="ann"):
    return PartyFolder(home / party / "party.toml")


def trained(home, party="ann"):
    """A party that has put its features in the order of the run."""
    folder = folder_of(home, party)
    folder.files.rows(SHARED)
    return folder


def bundle(labels=None, evaluated=None):
    return WriteBundle(
        parameters={"theta": np.arange(3.0)},
        calibration=Calibration(2.0, np.array([0.5])),
        labels=labels,
        evaluated=evaluated,
        spent=(SPENT,),
        alignment_hash=SHARED.digest,
        model=model_settings(l2=0.5),
    )


def test_a_party_that_the_run_does_not_have_is_refused(home):
    party = home / "bob" / "party.toml"
    party.write_text(party.read_text().replace('party = "bob"', 'party = "eve"'))
    with pytest.raises(SettingsError, match=r"party 'eve' is not among the federation's parties ann, bob"):
        folder_of(home, "bob")


def test_the_member_of_a_folder_has_its_settings_and_a_disk(home):
    folder = folder_of(home)
    member = folder.member(folder.endpoint(plain=True, server="127.0.0.1:9"))
    assert (member.name, member.is_label_party, member.is_durable, member.plain) == ("ann", True, True, True)
    assert member.threads == 1
    assert member.shared is None
    assert member.data is folder.files


def test_threads_are_as_many_as_the_machine_has_cores_unless_set(home):
    party = home / "ann" / "party.toml"
    party.write_text(party.read_text().replace("threads = 1", 'threads = "auto"'))
    folder = folder_of(home)
    assert folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")).threads == os.cpu_count()


def test_the_noise_key_is_the_same_at_every_start_and_another_in_another_run(home):
    def drawn():
        folder = folder_of(home)
        return folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")).noise

    first = drawn()
    assert drawn() == first
    rename(home / "run.toml", "second")
    assert drawn() != first


def test_plain_lines_are_for_loopback_only(home):
    with pytest.raises(SettingsError, match="for loopback only"):
        folder_of(home).endpoint(plain=True, server="example.org:7443")


def test_the_server_is_where_the_option_the_party_or_the_run_says_in_this_order(home):
    with pytest.raises(SettingsError, match="leaves the port open"):
        folder_of(home).endpoint(plain=True)
    party = home / "ann" / "party.toml"
    party.write_text('server = "127.0.0.1:5"\n' + party.read_text())
    assert folder_of(home).endpoint(plain=True).target == "127.0.0.1:5"
    assert folder_of(home).endpoint(plain=True, server="127.0.0.1:6").target == "127.0.0.1:6"


def test_keys_must_be_this_partys_own(home):
    authority = Authority("small")
    with pytest.raises(SettingsError, match=r"there is no .*key\.pem"):
        folder_of(home).endpoint(plain=False, server="h:1")
    write_credentials(home / "ann" / "keys", authority.issue("party", "bob"))
    with pytest.raises(SettingsError, match=r"names fdml://small/party/bob, not fdml://small/party/ann"):
        folder_of(home).endpoint(plain=False, server="h:1")
    ann = authority.issue("party", "ann")
    write_credentials(home / "ann" / "keys", ann)
    with pytest.raises(SettingsError, match=r"`fdml keys members` .* prints the \[members\] table"):
        folder_of(home).endpoint(plain=False, server="h:1")
    others = {"bob": "sha256:" + "1" * 64, "server": "sha256:" + "2" * 64}
    members = {**others, "ann": fingerprint(x509.load_pem_x509_certificate(ann.certificate))}
    federation = home / "federation.toml"
    federation.write_text(federation.read_text() + members_table(members))
    found = folder_of(home).endpoint(plain=False, server="h:1")
    assert found.server_key == "sha256:" + "2" * 64
    assert (found.target, found.party, found.credentials is None) == ("h:1", "ann", False)


# Saved state


def test_another_group_key_file_in_the_middle_of_a_run_is_noticed(home):
    """Chaos 13: it was never looked at again once the rows were aligned."""
    party, key = home / "ann" / "party.toml", home / "ann" / "group.key"
    party.write_text('group_key = "group.key"\n' + party.read_text())
    write_file(key, KEY.secret.hex().encode())
    begun = b"b" * 32
    folder_of(home).save_alignment(replace(SHARED, key=KEY.bound_to(begun, SHARED.digest), begun=begun))
    assert folder_of(home).shared_rows().digest == SHARED.digest
    write_file(key, b"f0" * 32)
    folder = folder_of(home)
    with pytest.raises(
        AlignmentError, match=r"holds another key than the one.*put that back, or give the run a new name"
    ):
        folder.member(folder.endpoint(plain=True, server="127.0.0.1:9"))


def test_an_alignment_is_used_by_every_later_start(home):
    folder_of(home).save_alignment(SHARED)
    found = folder_of(home).shared_rows()
    assert found.train.tolist() == SHARED.train.tolist()
    assert (found.digest, found.report, found.key.secret) == (SHARED.digest, REPORT, KEY.secret)
    folder = folder_of(home)
    assert folder.member(folder.endpoint(plain=True, server="127.0.0.1:9")).shared.digest == SHARED.digest


def test_an_alignment_of_other_files_is_refused(home):
    folder_of(home).save_alignment(SHARED)
    with (home / "ann" / "data.csv").open("a") as file:
        file.write("999,1.0,yes\n")
    with pytest.raises(AlignmentError, match=r"data of this party has changed.*a new name"):
        folder_of(home).shared_rows()


def test_an_alignment_of_another_run_is_refused(home):
    folder_of(home).save_alignment(SHARED)
    write_run(home, training="passes = 2\n")
    with pytest.raises(StateCorrupt, match=r"another run\.toml; put it back, or give the run a new name"):
        folder_of(home).shared_rows()


def test_state_of_an_older_fdml_is_not_gone_on_with(home):
    (home / "ann" / "state").mkdir()
    with pytest.raises(SettingsError, match=r"ann/state' holds a run of an older fdml; finish it with that version"):
        folder_of(home)


# The end


def test_a_bundle_has_all_that_prediction_needs(home):
    folder = trained(home)
    labels = LabelEncoding("binary", np.array(["no", "yes"]))
    metrics = Metrics(2, 1.5, 0.4, 0.3, 0.9)
    place = folder.write_bundle(bundle(labels, Evaluated("ann", 2, 1.5, 0.4, 0.3, 0.9, {"auc": 0.9})))
    assert place == home / "ann" / RUN / MODEL
    found = Bundle.load(place)
    assert found.parameters["theta"].tolist() == [0.0, 1.0, 2.0]
    assert found.labels.classes.tolist() == ["no", "yes"]
    assert (found.card.run, found.card.party, found.card.metrics) == ("first", "ann", metrics)
    assert found.card.figures == {"auc": 0.9}
    assert (found.card.scale, found.card.offset, found.card.privacy) == (2.0, (0.5,), (SPENT,))
    assert found.card.run_hash == run_hash(folder.run).hex()


def test_all_parties_bundles_of_a_run_have_one_version(home):
    places = [trained(home, party).write_bundle(bundle()) for party in ("ann", "bob")]
    assert len({Bundle.check(place).version for place in places}) == 1
    other = WriteBundle(**{**vars(bundle()), "alignment_hash": b"e" * 32})
    assert Bundle.check(folder_of(home).write_bundle(other)).version != Bundle.check(places[1]).version


def test_what_is_written_is_for_the_owners_eyes_only(home):
    folder = trained(home)
    place = folder.write_bundle(bundle())
    folder.write_statement(Statement("small", "ann", plain_line=True, spent=(SPENT,), exposures=()))
    files = [*place.iterdir(), home / "ann" / RUN / "privacy.md", home / "ann" / RUN / "privacy.json"]
    assert len(files) > 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_bundle_has_the_encoder_of_the_features_though_the_file_has_changed_since(home):
    """A start that goes on from a checkpoint may find another file, but trains on the features of before."""
    before = trained(home).files.encoder
    with (home / "ann" / "data.csv").open("a") as file:
        file.write("999,1000000.0,yes\n")
    assert Bundle.load(folder_of(home).write_bundle(bundle())).encoder == before


def test_before_features_are_stored_the_encoder_is_that_of_the_file(home):
    folder = folder_of(home)
    assert folder.files.encoder.to_json() == folder.files.sources[0].encoder.to_json()
