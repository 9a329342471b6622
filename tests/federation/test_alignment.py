import numpy as np
import pytest
from fdml.federation.alignment import AlignmentReport, PartyFiles, found_rows

from fdml.data.ids import IdCounts
from fdml.errors import AlignmentError, DataError, LabelError
from fdml.party.settings import PartySettings
from fdml.settings import DataSettings, RunSettings

RUN = RunSettings(parties=("ann", "bob"), label_party="ann")


def report_of(*ids, warning=""):
    return AlignmentReport("tokens", {"ann": 9, "bob": 8}, 7, 5, 2, 0.1, 10, 20, ids, warning)


def files_of(tmp_path, party, text="id,x,label\n1,2.5,yes\n2,3.5,no\n", **data):
    (tmp_path / "data.csv").write_text(text)
    settings = DataSettings(path=tmp_path / "data.csv", id="id", **data)
    return PartyFiles(PartySettings(party=party, run=tmp_path / "run.toml", data=settings), RUN)


def test_nothing_is_left_out_in_silence():
    found = IdCounts(rows=20, missing=2, repeated=7, dropped=9, missing_at=(4, 9), repeated_at=(5, 6, 7, 8, 10))
    assert report_of(found, warning="hardly any row is shared").remarks() == [
        "data.path: 2 rows without an id (data rows 4, 9)",
        "data.path: 7 rows with a duplicate id (data rows 5, 6, 7, 8, 10, ...)",
        "data.path: 9 rows were left out for that",
        "warning: hardly any row is shared",
    ]


def test_of_good_ids_there_is_nothing_to_say():
    good = IdCounts(rows=20, missing=0, repeated=0, dropped=0, missing_at=(), repeated_at=())
    assert report_of(good, good).remarks() == []
    assert report_of().remarks() == []


def test_remarks_say_which_file_they_are_about():
    good = IdCounts(20, 0, 0, 0, (), ())
    assert report_of(good, IdCounts(20, 1, 0, 1, (3,), ())).remarks()[0].startswith("data.test_path: 1 rows without")


def test_a_file_that_is_not_there_is_named(tmp_path):
    settings = PartySettings(party="bob", run=tmp_path, data=DataSettings(path=tmp_path / "none.csv"))
    with pytest.raises(DataError, match=r"there is no file .*none\.csv"):
        PartyFiles(settings, RUN)


def test_a_label_party_needs_labels_and_the_others_features(tmp_path):
    with pytest.raises(LabelError, match=r"label party .ann. has no labels; set data\.label"):
        _ = files_of(tmp_path, "ann").sources
    with pytest.raises(DataError, match="party 'bob' has no features"):
        _ = files_of(tmp_path, "bob", columns=[], label="label").sources
    assert files_of(tmp_path, "ann", columns=[], label="label").sources[0].names == ()


def test_the_fingerprint_changes_with_the_content_and_how_it_is_read_but_not_with_the_place(tmp_path):
    (tmp_path / "there").mkdir()
    here, there = files_of(tmp_path, "bob"), files_of(tmp_path / "there", "bob")
    assert here.fingerprint() == there.fingerprint()
    assert files_of(tmp_path, "bob", scale="none").fingerprint() != there.fingerprint()
    assert files_of(tmp_path, "bob", text="id,x\n1,2.5\n").fingerprint() != there.fingerprint()


def test_rows_that_were_never_aligned_are_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(AlignmentError, match="run `fdml align` first"):
        found_rows(tmp_path)


def test_found_rows_are_those_of_the_training_file(tmp_path):
    (tmp_path / "state").mkdir()
    with (tmp_path / "state" / "alignment").open("wb") as file:
        np.savez(file, train=np.array([3, 1, 2]), held_out=np.array([0]))
    assert found_rows(tmp_path).tolist() == [3, 1, 2]
