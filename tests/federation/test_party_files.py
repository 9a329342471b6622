import numpy as np
import pytest

from fdml.data.rows import to_dense
from fdml.errors import DataError, LabelError, SettingsError
from fdml.experiments.in_memory import KEY
from fdml.federation.party_files import PartyFiles
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings
from fdml.settings.data import DataSettings

RUN = RunSettings(parties=("ann", "bob"), label_party="ann")
TEXT = "id,x,label\n7,2.5,yes\n8,3.5,no\n9,4.5,no\n6,0.5,yes\n"


def files_of(tmp_path, party="ann", text=TEXT, test=None, run=RUN, **data):
    (tmp_path / "data.csv").write_text(text)
    if test is not None:
        (tmp_path / "test.csv").write_text(test)
        data["test_path"] = tmp_path / "test.csv"
    data = {"id": "id", "scale": "none", **data}
    settings = DataSettings(path=tmp_path / "data.csv", **data)
    state = tmp_path / "state"
    return PartyFiles(PartySettings(party=party, federation=tmp_path / "federation.toml", data=settings), run, state)


def shared_rows(train, held_out):
    report = AlignmentReport("tokens", {}, len(train) + len(held_out), len(train), len(held_out), 0.0)
    return SharedRows(np.array(train, np.int64), np.array(held_out, np.int64), b"d" * 32, KEY, report)


def test_a_file_that_is_not_there_is_named(tmp_path):
    settings = PartySettings(party="bob", federation=tmp_path, data=DataSettings(path=tmp_path / "none.csv"))
    with pytest.raises(DataError, match=r"there is no file .*none\.csv'; correct data\.path"):
        PartyFiles(settings, RUN, tmp_path / "state")


def test_a_test_file_that_is_not_there_is_named_too(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*test\.csv"):
        files_of(tmp_path, test_path=tmp_path / "test.csv")


def test_the_label_party_needs_labels_and_the_others_features(tmp_path):
    with pytest.raises(LabelError, match=r"label party 'ann' has no labels; set data\.label"):
        _ = files_of(tmp_path, "ann").sources
    with pytest.raises(DataError, match="it has neither features nor labels"):
        _ = files_of(tmp_path, "bob", ignore=["x", "label"], id="id").sources
    with pytest.raises(SettingsError, match=r"data\.label is set at party 'bob', but the labels are those of 'ann'"):
        files_of(tmp_path, "bob", label="label")
    assert files_of(tmp_path, "ann", columns=[], label="label").sources[0].names == ()


def test_the_fingerprint_changes_with_the_content_and_how_it_is_read_but_not_with_the_place(tmp_path):
    (tmp_path / "there").mkdir()
    here, there = files_of(tmp_path, "bob"), files_of(tmp_path / "there", "bob")
    assert here.fingerprint == there.fingerprint
    assert files_of(tmp_path, "bob", scale="standard").fingerprint != there.fingerprint
    assert files_of(tmp_path, "bob", text="id,x\n1,2.5\n").fingerprint != there.fingerprint


def test_the_rows_to_align_by_are_the_ids_and_the_file_rows_they_name(tmp_path):
    found = files_of(tmp_path, label="label").row_ids()
    assert found.ids.train.to_pylist() == ["7", "8", "9", "6"]
    assert found.train_rows.tolist() == found.test_rows.tolist() == [0, 1, 2, 3]
    (counts,) = found.counts
    assert (counts.rows, counts.missing, counts.repeated) == (4, 0, 0)


def test_rows_with_a_duplicate_id_are_left_out_as_set_and_counted(tmp_path):
    text = "id,x,label\n7,1,yes\n7,2,no\n8,3,no\n"
    found = files_of(tmp_path, text=text, label="label", ids={"duplicates": "drop"}).row_ids()
    assert found.ids.train.to_pylist() == ["8"]
    assert found.train_rows.tolist() == [2]
    assert (found.counts[0].repeated, found.counts[0].dropped) == (1, 2)


def test_without_ids_rows_are_matched_by_position(tmp_path):
    found = files_of(tmp_path, label="label", id=(), ignore=["id"], test=TEXT).row_ids()
    assert found.ids.train is None
    assert (found.ids.by_position.train, found.ids.by_position.test) == (4, 4)
    assert found.counts == ()


def test_a_test_file_has_ids_and_rows_of_its_own(tmp_path):
    found = files_of(tmp_path, label="label", test="id,x,label\n1,9,no\n2,8,yes\n").row_ids()
    assert found.ids.test.to_pylist() == ["1", "2"]
    assert found.test_rows.tolist() == [0, 1]
    assert len(found.counts) == 2


def test_features_come_in_the_order_of_the_run(tmp_path):
    rows = files_of(tmp_path, label="label").rows(shared_rows([3, 0], [2]))
    assert to_dense(rows.train).ravel().tolist() == [0.5, 2.5]
    assert to_dense(rows.held_out).ravel().tolist() == [4.5]


def test_held_out_rows_come_from_the_test_file_where_there_is_one(tmp_path):
    files = files_of(tmp_path, label="label", test="id,x,label\n1,9,no\n2,8,yes\n")
    rows = files.rows(shared_rows([1, 2, 0], [1, 0]))
    assert to_dense(rows.train).ravel().tolist() == [3.5, 4.5, 2.5]
    assert to_dense(rows.held_out).ravel().tolist() == [8.0, 9.0]


def test_features_are_written_once_and_mapped_by_later_starts(tmp_path):
    shared = shared_rows([3, 0], [2])
    files_of(tmp_path, label="label").rows(shared)
    (folder,) = (tmp_path / "state" / "blocks").iterdir()
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    rows = files_of(tmp_path, label="label").rows(shared)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert to_dense(rows.train).ravel().tolist() == [0.5, 2.5]


def test_the_features_of_another_alignment_take_the_place_of_those_before(tmp_path):
    files = files_of(tmp_path, label="label")
    files.rows(shared_rows([3, 0], [2]))
    (before,) = (tmp_path / "state" / "blocks").iterdir()
    rows = files.rows(shared_rows([0, 1], [2]))
    (after,) = (tmp_path / "state" / "blocks").iterdir()
    assert before != after
    assert to_dense(rows.train).ravel().tolist() == [2.5, 3.5]


def test_labels_are_encoded_by_those_of_the_training_rows(tmp_path):
    labels, encoding = files_of(tmp_path, label="label").labels(shared_rows([0, 1, 3], [2]))
    assert labels.classes == encoding.class_count == 2
    assert encoding.classes.tolist() == ["no", "yes"]
    assert (labels.train.tolist(), labels.held_out.tolist()) == ([1.0, 0.0, 1.0], [0.0])
    assert (labels.train_weights.tolist(), labels.held_out_weights.tolist()) == ([1.0] * 3, [1.0])


def test_a_label_that_the_training_rows_do_not_have_is_an_error(tmp_path):
    text = "id,x,label\n1,1,yes\n2,2,no\n3,3,maybe\n"
    with pytest.raises(LabelError, match="the label in test row 0 does not occur in training"):
        files_of(tmp_path, text=text, label="label").labels(shared_rows([0, 1], [2]))


def test_groups_are_those_of_the_shared_rows(tmp_path):
    text = "id,x,label,query\n1,1,no,a\n2,2,yes,b\n3,3,no,a\n4,4,yes,b\n"
    files = files_of(tmp_path, text=text, label="label", group="query")
    labels, _ = files.labels(shared_rows([3, 0], [2]))
    assert (labels.train_groups.tolist(), labels.held_out_groups.tolist()) == ([1, 0], [0])
    assert files.sources[0].names == ("x",), "a group is no feature"


def test_weights_have_mean_one_over_the_rows_they_are_of(tmp_path):
    text = "id,x,w,label\n1,1,2,yes\n2,2,6,no\n3,3,5,no\n"
    files = files_of(tmp_path, text=text, label="label", weight="w")
    labels, _ = files.labels(shared_rows([0, 1], [2]))
    assert files.weighted
    assert labels.train_weights.tolist() == [0.5, 1.5]
    assert labels.held_out_weights.tolist() == [1.0]
    assert not files_of(tmp_path, label="label").weighted


@pytest.mark.parametrize("held_out", [[], [3, 1]])
def test_a_label_that_cannot_be_a_count_is_named_by_its_row_in_the_file(tmp_path, held_out):
    run = RunSettings(parties=("ann", "bob"), label_party="ann", task="regression", loss="poisson")
    files = files_of(tmp_path, text="id,x,y\n1,1,10\n2,2,20\n3,3,30\n4,4,-4711\n", run=run, label="y")
    with pytest.raises(LabelError, match="the label in row 3 is below 0") as raised:
        files.labels(shared_rows([2, 0] if held_out else [2, 3, 0, 1], held_out))
    assert "4711" not in str(raised.value)


def test_counts_are_divided_by_their_mean(tmp_path):
    run = RunSettings(parties=("ann", "bob"), label_party="ann", task="regression", loss="poisson")
    files = files_of(tmp_path, text="id,x,y\n1,1,10\n2,2,20\n3,3,30\n", run=run, label="y")
    labels, encoding = files.labels(shared_rows([0, 1], [2]))
    assert (labels.train.tolist(), labels.held_out.tolist()) == ([10 / 15, 20 / 15], [2.0])
    assert encoding.inverse_transform(np.zeros((1, 1))).tolist() == [15.0]


def test_a_regression_has_no_classes(tmp_path):
    run = RunSettings(parties=("ann", "bob"), label_party="ann", task="regression")
    files = files_of(tmp_path, text="id,x,y\n1,1,10\n2,2,20\n3,3,30\n", run=run, label="y")
    labels, encoding = files.labels(shared_rows([0, 1, 2], []))
    assert labels.classes == 0
    assert encoding.inverse_transform(labels.train.reshape(-1, 1)).tolist() == pytest.approx([10, 20, 30])
