"""No cell of anyone's file is quoted in an error: finding 22, "label 'HIV-positive' in test row 1"."""

import gzip
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from fdml.data.column_features import present_or_nan
from fdml.data.column_types import labels_of, weights_of
from fdml.data.documents import checked
from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.data.libsvm import scan
from fdml.errors import DataError, LabelError
from tests.data.origins import csv_files

CANARY = "HIV-positive"
NUMBER = 31337.125


@dataclass(frozen=True)
class Fact:
    """Something of a document."""

    categories: tuple[int, ...]


def told(error, work, *given, **named):
    """The text of the error that some work raises."""
    with pytest.raises(error) as raised:
        work(*given, **named)
    return str(raised.value)


def test_a_label_that_training_does_not_know_is_given_by_its_row():
    encoding = fit_labels("multiclass", np.array(["flu", "healthy", "flu"]))
    text = told(LabelError, encoding.transform, np.array(["flu", CANARY]))
    assert "test row 1" in text
    for value in (CANARY, "flu", "healthy"):
        assert value not in text


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("binary", [CANARY, CANARY]),
        ("binary", [CANARY, "flu", "healthy"]),
        ("regression", [CANARY, "flu"]),
    ],
)
def test_labels_that_do_not_fit_the_task_are_counted_and_not_listed(task, labels):
    text = told(LabelError, fit_labels, task, np.array(labels))
    assert CANARY not in text
    assert "flu" not in text


def test_a_label_below_0_is_given_by_its_row():
    text = told(LabelError, fit_labels, "regression", np.array([1.0, -4711.5]), link="log")
    assert "row 1" in text
    assert "4711" not in text


@pytest.mark.parametrize("classes", [["flu", CANARY], [CANARY, CANARY]])
def test_the_classes_of_a_damaged_label_encoding_are_not_listed(classes):
    stored = fit_labels("binary", np.array(["a", "b"])).to_json().replace('"a"', f'"{classes[0]}"')
    text = told(LabelError, LabelEncoding.from_json, stored.replace('"b"', f'"{classes[1]}"'))
    assert CANARY not in text


def test_a_damaged_document_is_named_by_place_and_not_by_value():
    text = told(DataError, checked, Fact, {"categories": [1, CANARY]}, "the encoder")
    assert "categories.1" in text
    assert CANARY not in text


def test_numbers_that_cannot_be_used_are_given_by_their_row():
    column = pa.array([1.0, NUMBER * 1e40])
    for text in (
        told(DataError, present_or_nan, "age", column),
        told(DataError, weights_of, "w", pa.array([1.0, -NUMBER])),
        told(LabelError, labels_of, "y", pa.array([1.0, float("inf")])),
    ):
        assert "data row 2" in text
        assert "3133" not in text
        assert "inf " not in text


BROKEN = {
    "a line of too many cells": f"id,diagnosis\n1,flu\n2,{CANARY},{CANARY}\n",
    "a line of too few cells": f"id,diagnosis\n1,flu\n{CANARY}\n",
    "a cell that is no UTF-8": f"id,diagnosis\n1,{CANARY}\xff\n",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_csv_file_that_cannot_be_read_is_not_quoted(tmp_path, what):
    """Arrow puts the whole row into its error."""
    path = tmp_path / "data.csv"
    path.write_bytes(BROKEN[what].encode("latin-1"))

    def read():
        file = csv_files(path, ["diagnosis"])
        file.settle(["id", "diagnosis"])

    text = told(DataError, read)
    assert text.startswith("cannot be read as CSV in UTF-8 with commas: ")
    assert CANARY not in text
    assert "flu" not in text


def test_how_many_cells_a_line_should_have_is_told(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(BROKEN["a line of too many cells"])
    assert "Expected 2 columns, got 3" in told(DataError, lambda: csv_files(path, []).settle(["id"]))


def test_a_csv_file_that_is_not_there_is_still_named(tmp_path):
    assert "nowhere.csv" in told(DataError, csv_files, tmp_path / "nowhere.csv", [])


def test_a_libsvm_file_that_cannot_be_read_is_not_quoted(tmp_path):
    path = tmp_path / "data.libsvm"
    path.write_text(f"1 1:0.5\n0 1:{CANARY}\n")
    assert CANARY not in told(DataError, scan, path, 1000)
    (tmp_path / "data.libsvm.gz").write_bytes(gzip.compress(b"1 1:0.5\n")[:-9])
    assert "LIBSVM" in told(DataError, scan, tmp_path / "data.libsvm.gz", 1000)
