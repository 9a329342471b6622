"""What a standing party answers from: models that count, as they are on disk now."""

import gc
import threading
import weakref

import pytest

from fdml.federation.answering import PublishedModels
from fdml.federation.run_folder import RunFolder
from fdml.storage.atomic import remove_folder
from tests.serving.published import (
    IDS,
    PARTIES,
    answerer_of,
    ask,
    asker_of,
    federation,
    publication_of,
    run_of,
    values_of,
)


@pytest.fixture
def home(tmp_path):
    RunFolder(tmp_path, run_of()).begin()
    return tmp_path


def save(home, values, run="first"):
    publication_of("bob", IDS, values).save(home / "runs" / run / "serving")


def test_a_model_is_found_by_the_name_of_its_run(home):
    values = values_of()["bob"]
    models = PublishedModels(home, lambda _: True)
    assert models.find("first") is None, "it is not published yet"
    save(home, values)
    assert models.find("first").run.name == "first"
    assert models.find("first") is models.find("first"), "it is mapped once"
    assert models.find("second") is None


def test_a_model_that_was_written_anew_is_mapped_anew(home):
    values = values_of()["bob"]
    models = PublishedModels(home, lambda _: True)
    save(home, values)
    before = models.find("first").column.codes.copy()
    save(home, values + 1.0)
    assert (models.find("first").column.codes != before).all()


def test_a_model_whose_folder_has_the_number_of_an_older_one_is_mapped_anew(home):
    """File systems give numbers out again: after two changes the folder may have the first one's."""
    values = values_of()["bob"]
    models = PublishedModels(home, lambda _: True)
    save(home, values)
    before, place = models.find("first").column.codes.copy(), home / "runs" / "first" / "serving"
    publication_of("bob", IDS, values + 1.0).save(home / "other")
    for path in place.iterdir():
        path.unlink()
    for path in (home / "other").iterdir():
        path.rename(place / path.name)
    assert (models.find("first").column.codes != before).all()


def test_a_model_that_some_party_has_not_finished_does_not_count(home):
    finished = threading.Event()
    models = PublishedModels(home, lambda _: finished.is_set())
    save(home, values_of()["bob"])
    assert models.find("first") is None
    finished.set()
    assert models.find("first") is not None


def test_a_name_that_leads_out_of_the_folder_finds_nothing(home):
    save(home, values_of()["bob"])
    models = PublishedModels(home / "runs", lambda _: True)
    for name in ("../first", "..", "", "/"):
        assert models.find(name) is None


def test_a_question_is_answered_from_what_is_found(home):
    values = values_of()
    found, _ = federation(values)
    save(home, values["bob"])
    found["bob"] = PublishedModels(home, lambda _: True).find("first")
    answers = ask(asker_of(found, "ann"), IDS[:3])
    assert answers.score.tolist() == sum(values[name] for name in PARTIES)[:3].tolist()
    assert answerer_of(found["bob"]).find("first") is found["bob"]


def test_a_model_that_was_forgotten_is_let_go(home):
    save(home, values_of()["bob"])
    models = PublishedModels(home, lambda _: True)
    found = weakref.ref(models.find("first"))
    assert found() is not None
    remove_folder(home / "runs" / "first" / "serving")
    assert models.find("first") is None
    gc.collect()
    assert found() is None, "its file stays on disk for as long as it is mapped"
