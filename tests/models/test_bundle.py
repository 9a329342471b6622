from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import shutil
import stat
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.column_features import Hashed, Number, OneHot
from fdml.data.encoding import Encoder, fit
from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.errors import DataError, StateCorrupt
from fdml.events import Evaluated
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard, version_of
from fdml.party.settings import PartySettings
from fdml.privacy.statement import Spent
from fdml.protocol.messages import Metrics
from fdml.settings import RunSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from tests.data.frames import data_settings, tables
from tests.storage.system_calls import SystemCalls, crash_at_every_call

RUN = RunSettings(name="shop", parties=("store", "browser"), label_party="store")
PARTY = PartySettings(
    party="store",
    federation="../secret-place/federation.toml",
    data={"path": "/home/ann/secret-place/x.csv", "test_path": "secret-place/t.csv", "id": "user", "label": "paid"},
)
ALIGNMENT = bytes(range(32))
STATE = {
    "weights": np.array([[0.1, -2.0]], np.float32),
    "module/bias": np.array(0.5),
    "steps": np.array([7]),
    "empty": np.zeros((0, 3), np.float32),
}
ENCODER = Encoder((Number("age", None, 40.0, 12.5), OneHot("city", ("Köln", "Lima")), Hashed("zip", 8)))
LABELS = LabelEncoding("binary", np.array(["no", "yes"]))
SPENT = (Spent("training rows", 20, 3.5, 1e-5, "one row"), Spent("held-out rows", 1, None, 1e-5, "one row"))
FILES = ["card.json", "encoder.json", "labels.json", "manifest.json", "parameters.npz"]


def card(party="store", run=RUN, **values):
    return BundleCard.of(run=run, party=party, model=PARTY.model, data=PARTY.data, alignment_hash=ALIGNMENT, **values)


def bundle(**values):
    return Bundle(**{"card": card(), "parameters": STATE, "encoder": ENCODER, "labels": LABELS, **values})


@pytest.fixture
def saved(tmp_path):
    bundle().save(tmp_path / "model")
    return tmp_path / "model"


def same_state(one, other):
    assert list(one) == list(other)
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
        assert array.tobytes() == other[name].tobytes()


def test_a_bundle_comes_back_as_it_was_saved(tmp_path):
    metrics = Metrics(20, 1.5, 0.3, 0.4, 0.9)
    figures = {"auc": 0.9, "ks": None}
    found = Evaluated("store", 20, 1.5, 0.3, 0.4, 0.9, figures)
    given_card = card(evaluated=found, privacy=SPENT, scale=1.25, offset=np.array([0.5, -0.5]))
    bundle(card=given_card).save(tmp_path / "model")
    found = Bundle.load(tmp_path / "model")
    assert found.card == given_card
    assert (found.card.metrics, found.card.figures, found.card.privacy) == (metrics, figures, SPENT)
    assert (found.card.scale, found.card.offset) == (1.25, (0.5, -0.5))
    assert found.encoder == ENCODER
    assert found.labels.classes.tolist() == ["no", "yes"]
    same_state(found.parameters, STATE)


def test_a_party_without_labels_has_no_file_of_them(tmp_path):
    bundle(labels=None).save(tmp_path / "model")
    assert Bundle.load(tmp_path / "model").labels is None
    assert sorted(os.listdir(tmp_path / "model")) == [name for name in FILES if name != "labels.json"]


@pytest.mark.parametrize("encoder", [MatrixEncoder(2, np.array([0.1, 2], np.float32), 0), MatrixEncoder(5, None)])
def test_an_encoder_of_a_matrix_is_saved_too(tmp_path, encoder):
    bundle(encoder=encoder).save(tmp_path / "model")
    assert Bundle.load(tmp_path / "model").encoder.to_json() == encoder.to_json()


@given(tables(min_size=2), tables())
def test_a_loaded_bundle_encodes_rows_it_has_never_seen_to_the_same_bits(tmp_path_factory, train, unseen):
    encoder = fit([train], tuple(train.column_names), data_settings(scale="none"))
    folder = tmp_path_factory.mktemp("bundle") / "model"
    bundle(encoder=encoder).save(folder)
    for mine, theirs in zip(Bundle.load(folder).encoder.encode(unseen), encoder.encode(unseen), strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


def test_targets_of_regression_come_back_in_their_units(tmp_path):
    labels = fit_labels("regression", np.array([10.0, 20.0, 60.0]))
    bundle(labels=labels).save(tmp_path / "model")
    assert Bundle.load(tmp_path / "model").labels == labels


def test_the_card_says_what_it_is_in_plain_words(saved):
    found = json.loads((saved / "card.json").read_text())
    assert {name: found[name] for name in ("layout", "run", "party", "metrics", "privacy", "scale", "offset")} == {
        "layout": 1,
        "run": "shop",
        "party": "store",
        "metrics": None,
        "privacy": None,
        "scale": 1.0,
        "offset": [0.0],
    }
    assert found["run_hash"] == run_hash(RUN).hex()
    assert found["version"] == version_of(run_hash(RUN), ALIGNMENT)
    assert found["created"].endswith("+00:00")
    assert found["fdml_version"]


def test_the_card_holds_the_settings_and_no_path_of_this_machine(saved):
    found = Bundle.check(saved)
    assert RunSettings(**found.settings.run) == RUN
    assert found.settings.model == PARTY.model.model_dump(mode="json")
    assert (found.settings.data["id"], found.settings.data["label"]) == (["user"], "paid")
    assert not {"path", "test_path"} & set(found.settings.data)
    for name in FILES:
        assert b"secret-place" not in (saved / name).read_bytes()


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -float("inf")])
def test_a_metric_that_is_no_number_is_left_out(tmp_path, figure):
    found = Evaluated("store", 3, 1.0, 0.5, figure, None, {"r2": figure, "mae": 2.0})
    bundle(card=card(evaluated=found)).save(tmp_path / "model")
    loaded = Bundle.load(tmp_path / "model").card
    assert loaded.metrics == Metrics(3, 1.0, 0.5, None, None)
    assert loaded.figures == {"r2": None, "mae": 2.0}


@pytest.mark.parametrize("stop_after", [None, 3])
def test_a_card_says_whether_held_out_rows_have_chosen_the_model(stop_after):
    run = RUN.model_copy(update={"evaluation": EvaluationSettings(stop_after=stop_after)})
    found = card(evaluated=Evaluated("store", 3, 1.0, 0.5, 0.4, None), run=run)
    assert found.chosen_by_held_out_rows == (stop_after is not None)


def test_all_parties_of_a_run_name_their_bundles_alike():
    other = card("browser")
    assert other.version == card().version
    assert (len(other.version), other.party) == (32, "browser")


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_another_run_or_another_alignment_is_another_version(run, alignment, other_run, other_alignment):
    same = (run, alignment) == (other_run, other_alignment)
    assert (version_of(run, alignment) == version_of(other_run, other_alignment)) == same


def test_what_is_hashed_cannot_be_shifted_from_one_part_to_the_other():
    assert version_of(b"ab", b"c") != version_of(b"a", b"bc")


def test_a_version_knows_nothing_of_parameters_or_features():
    """Not even a hash of them may leave a party."""
    assert list(inspect.signature(version_of).parameters) == ["run_hash", "alignment_hash"]
    assert version_of(bytes(32), bytes(32)) == "1cca85eff63933fcb574dfe3c37dd9f7"


def test_files_and_folder_are_for_their_owner_from_their_first_byte(tmp_path, monkeypatch):
    calls = SystemCalls(monkeypatch)
    before = os.umask(0)
    try:
        bundle().save(tmp_path / "model")
    finally:
        os.umask(before)
    assert sorted(calls.opened()) == [(name, 0o600) for name in FILES]
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o700
    assert {stat.S_IMODE((tmp_path / "model" / name).stat().st_mode) for name in FILES} == {0o600}


def test_a_bundle_replaces_the_one_of_an_earlier_run_whole(saved):
    bundle(labels=None, parameters={"other": np.ones(2)}).save(saved)
    found = Bundle.load(saved)
    assert (list(found.parameters), found.labels) == (["other"], None)
    assert os.listdir(saved.parent) == ["model"]


def test_a_crash_at_any_moment_of_saving_leaves_a_whole_bundle(tmp_path_factory):
    old, new = bundle(), bundle(parameters={"weights": np.zeros(3)}, labels=None)

    def prepare():
        folder = tmp_path_factory.mktemp("crash") / "model"
        old.save(folder)
        return folder

    def check(folder, *, ended):
        found = Bundle.load(folder)
        expected = new if ended or found.labels is None else old
        same_state(found.parameters, expected.parameters)
        new.save(folder)
        same_state(Bundle.load(folder).parameters, new.parameters)

    assert crash_at_every_call(new.save, prepare, check) > 15


def test_a_failure_while_it_is_written_leaves_the_bundle_of_before(saved):
    broken = bundle(parameters={"x": np.array([None], object)})
    with pytest.raises(DataError, match="array 'x' is of type object"):
        broken.save(saved)
    same_state(Bundle.load(saved).parameters, STATE)


def test_no_bundle_says_when_there_will_be_one(tmp_path):
    with pytest.raises(DataError, match=r"there is no bundle '.*model'; `fdml join` writes it when the run ends"):
        Bundle.load(tmp_path / "model")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["removed", "emptied", "cut", "longer", "a folder"])
def test_a_damaged_file_is_named_with_the_way_out(saved, name, damage):
    path = saved / name
    content = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "removed":
        path.write_bytes({"emptied": b"", "cut": content[:-9], "longer": content + b"{}"}[damage])
    message = rf"the bundle '.*model' is damaged: {name}: .*; restore the folder from a copy, or train again under"
    for use in (Bundle.check, Bundle.load):
        with pytest.raises(StateCorrupt, match=message):
            use(saved)


@given(st.sampled_from([name for name in FILES if name != "manifest.json"]), st.data())
def test_any_byte_that_changed_is_noticed(tmp_path_factory, name, data):
    folder = tmp_path_factory.mktemp("flipped") / "model"
    bundle().save(folder)
    content = bytearray((folder / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / name).write_bytes(content)
    with pytest.raises(StateCorrupt, match=f"is damaged: {name}: it is not the one that manifest.json lists"):
        Bundle.load(folder)


@given(st.data())
def test_a_manifest_that_changed_never_lets_a_wrong_bundle_pass(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("manifest") / "model"
    bundle().save(folder)
    content = bytearray((folder / "manifest.json").read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / "manifest.json").write_bytes(content)
    try:
        found = Bundle.load(folder)
    except (StateCorrupt, DataError):
        return
    same_state(found.parameters, STATE)


def rewrite(folder, name, content):
    """Change a file together with its entry in the manifest, as someone would who means to."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    manifest["files"][name] = {"size": len(content), "blake2b": digest}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_nothing_in_a_bundle_is_ever_run(saved):
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, weights=np.array([{"code": 1}], object))
    rewrite(saved, "parameters.npz", buffer.getvalue())
    with pytest.raises(DataError, match=r"model: no file of numpy arrays: Object arrays cannot be loaded"):
        Bundle.load(saved)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("card.json", b"{}", "model: card.json has no layout number"),
        ("card.json", b'{"layout": 1}', r"model: card.json: run is .*Field required|model: card.json: run"),
        ("encoder.json", b"[]", "model: the encoder has no layout number"),
        ("labels.json", b"nothing", "model: the label encoding is no JSON"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(saved, name, content, message):
    rewrite(saved, name, content)
    with pytest.raises(DataError, match=message):
        Bundle.load(saved)


@pytest.mark.parametrize("name", ["../party.toml", "/etc/passwd", "notes.txt"])
def test_a_manifest_cannot_lead_to_other_files(saved, name):
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"][name] = {"size": 0, "blake2b": ""}
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StateCorrupt, match=f"manifest.json: it lists '{name}', which is no file of a bundle"):
        Bundle.load(saved)


@pytest.mark.parametrize("name", ["card.json", "encoder.json", "parameters.npz"])
def test_a_manifest_must_list_what_every_bundle_has(saved, name):
    manifest = json.loads((saved / "manifest.json").read_text())
    del manifest["files"][name]
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StateCorrupt, match=f"manifest.json: it does not list {name}"):
        Bundle.check(saved)


def test_a_layout_that_is_not_known_says_which_fdml_reads_it(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "layout": 2, "fdml_version": "9.1", "more": []}))
    with pytest.raises(
        DataError,
        match=r"has layout 2, written by fdml 9.1; this is fdml .*, which reads layout 1; load it with fdml 9.1",
    ):
        Bundle.load(saved)


def test_files_that_someone_put_beside_are_left_alone(saved):
    (saved / "notes.txt").write_text("our best one")
    assert Bundle.check(saved) == Bundle.load(saved).card


def test_a_bundle_can_be_moved_and_copied(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "elsewhere" / "copy")
    same_state(Bundle.load(tmp_path / "elsewhere" / "copy").parameters, STATE)


def test_the_same_bundle_is_written_as_the_same_bytes(tmp_path):
    given_bundle = bundle()
    for name in ("one", "other"):
        given_bundle.save(tmp_path / name)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_only_the_card_differs_where_the_time_does(tmp_path):
    one = bundle()
    one.save(tmp_path / "one")
    replace(one, card=replace(one.card, created="2026-01-01T00:00:00+00:00")).save(tmp_path / "other")
    differing = [n for n in FILES if (tmp_path / "one" / n).read_bytes() != (tmp_path / "other" / n).read_bytes()]
    assert differing == ["card.json", "manifest.json"]


def test_a_table_that_was_never_seen_is_encoded_by_a_loaded_bundle(saved):
    frame = pa.table({"age": [52.5], "city": ["Oslo"], "zip": ["01"]})
    expected = ENCODER.encode(frame)
    for mine, theirs in zip(Bundle.load(saved).encoder.encode(frame), expected, strict=True):
        assert np.asarray(mine).tolist() == np.asarray(theirs).tolist()
