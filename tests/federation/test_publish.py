"""Publishing at the end of a run, and again when files change; the models of a folder."""

import contextlib
import json
import shutil

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from fdml.errors import DataError, SettingsError
from fdml.federation import publish as publishing
from fdml.federation.asked_files import asked_file, own_rows
from fdml.federation.models import chosen_model, forget_model, models_of
from fdml.federation.party_folder import PartyFolder
from fdml.federation.predicting import answerer_of, asking_locally, releases_of
from fdml.federation.publish import COLUMN_PARTS, publish, refreshed
from fdml.party.settings import read_party
from fdml.serving.asking import AskedRows
from fdml.serving.publication import Publication, is_published
from fdml.storage.lock import is_locked
from tests.serving.published import texts
from tests.serving.trained import trained, write_federation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("trained"), parties=("ann", "bob"))


@pytest.fixture
def home(once, tmp_path):
    """A copy, for tests that change it."""
    shutil.copytree(once, tmp_path / "copy")
    return tmp_path / "copy"


def bob(home):
    return read_party(home / "bob" / "party.toml"), home / "bob"


def value_of(publication, row):
    column = publication.column
    (place,) = column.find(publication.facts.keys.tokens_of(texts([row])))
    return None if place < 0 else column.codes[place].tolist()


def change(home, row, line):
    """Another line for a row of bob's file, or a new row."""
    path = home / "bob" / "data.csv"
    kept = [each for each in path.read_text().splitlines() if each.split(",")[0] != row]
    path.write_text("\n".join([*kept, line]) + "\n")


def test_a_run_ends_with_a_published_model_of_all_rows_with_an_id(once):
    found = Publication.load(once / "bob" / "runs" / "first" / "serving")
    assert len(found.column) == 250, "also rows that the others do not hold"
    assert found.facts.version == chosen_model(once / "bob", "first").card.version
    assert found.facts.reading == ""
    assert Publication.load(once / "ann" / "runs" / "first" / "serving").facts.reading


def test_publishing_again_changes_nothing(once):
    before = Publication.load(once / "bob" / "runs" / "first" / "serving")
    again = publish(PartyFolder(once / "bob" / "party.toml"))
    assert again.facts == before.facts
    assert (again.column.codes == before.column.codes).all()


def test_workers_compute_the_column_of_a_folder_to_the_bits_of_one_file(home):
    before, path = refreshed(*bob(home), "first"), home / "bob" / "party.toml"
    rows = pacsv.read_csv(home / "bob" / "data.csv")
    (home / "bob" / "rows").mkdir()
    for start in range(0, len(rows), 20):
        pq.write_table(rows.slice(start, 20), home / "bob" / "rows" / f"{start:05d}.parquet")
    workers = "[workers]\nfiles = true\ncount = 2\n"
    path.write_text(path.read_text().replace('"data.csv"', '"rows"') + workers)
    after = refreshed(*bob(home), "first")
    assert after.facts.data != before.facts.data
    assert after.facts.generation == before.facts.generation, "no value has changed"
    for name in ("high", "low", "codes", "exact"):
        assert (getattr(after.column, name) == getattr(before.column, name)).all()
    assert not (home / "bob" / "runs" / "first" / COLUMN_PARTS).exists()


def test_the_same_files_are_not_computed_again(once):
    assert refreshed(*bob(once), "first").facts.computed == 1


def test_changed_and_new_rows_are_computed_again_and_the_others_stay(home):
    before = refreshed(*bob(home), "first")
    old, same = value_of(before, "r1"), value_of(before, "r2")
    change(home, "r1", "r1,5.0,5.0")
    change(home, "fresh", "fresh,0.1,0.2")
    after = refreshed(*bob(home), "first")
    assert value_of(after, "r1") != old
    assert value_of(after, "r2") == same
    assert value_of(after, "fresh") is not None
    assert (after.facts.generation, after.facts.computed) == (2, 2)
    assert Publication.load(home / "bob" / "runs" / "first" / "serving").facts == after.facts


def test_one_process_at_a_time_computes_a_column(home, monkeypatch):
    """Two would draw the same noise, for values that may differ; whoever waited takes what the other has made."""
    change(home, "r1", "r1,5.0,5.0")
    compute, made = publishing._computed, []

    def computed(*given, **named):
        assert is_locked(home / "bob" / "runs" / "first" / ".serving.turn")
        made.append(given)
        return compute(*given, **named)

    monkeypatch.setattr(publishing, "_computed", computed)
    turns = publishing.shared_turns

    @contextlib.contextmanager
    def turn_after_another(folder):
        monkeypatch.setattr(publishing, "shared_turns", turns)
        refreshed(*bob(home), "first")
        with turns(folder):
            yield

    monkeypatch.setattr(publishing, "shared_turns", turn_after_another)
    assert refreshed(*bob(home), "first").facts.computed == 2
    assert len(made) == 1


def test_a_model_is_published_by_one_process_at_a_time(home, monkeypatch):
    shutil.rmtree(home / "bob" / "runs" / "first" / "serving")
    compute, held = publishing._computed, []

    def computed(*given, **named):
        held.append(is_locked(home / "bob" / "runs" / "first" / ".serving.turn"))
        return compute(*given, **named)

    monkeypatch.setattr(publishing, "_computed", computed)
    publish(PartyFolder(home / "bob" / "party.toml"))
    publish(PartyFolder(home / "bob" / "party.toml"))
    assert held == [True]


def test_a_row_that_leaves_the_file_and_comes_back_is_one_more_release(home):
    path = home / "bob" / "data.csv"
    whole = path.read_text()
    path.write_text("".join(line for line in whole.splitlines(keepends=True) if not line.startswith("r1,")))
    assert refreshed(*bob(home), "first").facts.generation == 1
    path.write_text(whole)
    assert refreshed(*bob(home), "first").facts.generation == 2


def test_a_new_row_alone_is_no_new_generation(home):
    change(home, "fresh", "fresh,0.1,0.2")
    assert refreshed(*bob(home), "first").facts.generation == 1


def test_a_file_that_cannot_be_encoded_leaves_what_was_published(home):
    (home / "bob" / "data.csv").write_text("id,a\nr1,0.5\n")
    with pytest.raises(DataError):
        refreshed(*bob(home), "first")
    assert len(Publication.load(home / "bob" / "runs" / "first" / "serving").column) == 250


def test_a_party_without_ids_publishes_nothing(tmp_path):
    write_federation(tmp_path, parties=("ann", "bob"))
    path = tmp_path / "bob" / "party.toml"
    path.write_text(path.read_text().replace('id = "id"\n', 'ignore = ["id"]\n'))
    assert publish(PartyFolder(path)) is None


def test_a_file_of_ids_needs_the_columns_of_data_id_or_a_single_one(once, tmp_path):
    party, run = read_party(once / "ann" / "party.toml"), PartyFolder(once / "ann" / "party.toml").run
    (tmp_path / "one.csv").write_text("whatever\nr1\nr2\n")
    ((shown, rows),) = asked_file(tmp_path / "one.csv", party, run).table.blocks(10)
    assert rows.ids.to_pylist() == ["r1", "r2"]
    assert shown.column_names == ["whatever"]
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"no column 'id'.*its columns are a, b"):
        list(asked_file(tmp_path / "two.csv", party, run).table.blocks(10))
    (tmp_path / "none.csv").write_text("id\n")
    with pytest.raises(DataError, match="no rows"):
        list(asked_file(tmp_path / "none.csv", party, run).table.blocks(10))


def test_a_file_is_read_in_blocks(once, tmp_path):
    party, run = read_party(once / "ann" / "party.toml"), PartyFolder(once / "ann" / "party.toml").run
    (tmp_path / "ids.csv").write_text("id,more\n" + "".join(f"r{at},x\n" for at in range(7)))
    table = asked_file(tmp_path / "ids.csv", party, run).table
    assert table.count == 7
    assert [len(rows) for _, rows in table.blocks(3)] == [3, 3, 1]
    assert table.digest == asked_file(tmp_path / "ids.csv", party, run).table.digest
    assert not table.has_changed()
    (tmp_path / "ids.csv").write_text("id,more\nr1,x\n")
    assert table.has_changed()


def test_own_rows_have_labels(once):
    party, run = read_party(once / "ann" / "party.toml"), PartyFolder(once / "ann" / "party.toml").run
    found = own_rows(party, run)
    assert len(found.rows) == len(found.labels) == 250
    assert found.weights is None


def test_a_party_without_ids_cannot_ask(once, tmp_path):
    party = read_party(once / "ann" / "party.toml")
    nameless = party.model_copy(update={"data": party.data.model_copy(update={"id": ()})})
    with pytest.raises(SettingsError, match=r"data\.id"):
        asked_file(once / "ann" / "data.csv", nameless, PartyFolder(once / "ann" / "party.toml").run)


def test_an_answerer_knows_its_own_run_alone(once):
    party, folder = bob(once)
    answerer = answerer_of(party, refreshed(party, folder, "first"))
    assert answerer.find("first") is not None
    assert answerer.find("second") is None
    releases_of(party).count(answerer.find("first"))


def test_models_are_found_by_run_or_version_and_forgotten_for_good(home):
    (found,) = models_of(home / "bob")
    assert chosen_model(home / "bob", found.card.version[:5]).run == "first"
    assert (found.rows, found.generation) == (250, 1)
    parts = home / "bob" / "runs" / "first" / COLUMN_PARTS
    parts.mkdir()
    assert forget_model(home / "bob", "first") == ["serving", "model"]
    assert not parts.exists(), "they hold predictions"
    assert models_of(home / "bob") == []
    with pytest.raises(DataError, match=r"there is no model 'first'.*none"):
        chosen_model(home / "bob", "first")
    with pytest.raises(SettingsError, match="no run 'second'"):
        forget_model(home / "bob", "second")


@pytest.mark.parametrize("left", [".serving.old", ".serving.partial"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_forgotten_model_does_not_come_back_from_what_a_crash_has_left(home, left, is_whole):
    """A crash in the middle of a refresh leaves the old folder beside, or in the place of, the new one."""
    folder = home / "bob" / "runs" / "first"
    shutil.copytree(folder / "serving", folder / left)
    if not is_whole:
        shutil.rmtree(folder / "serving")
    assert "serving" in forget_model(home / "bob", "first")
    assert not is_published(folder / "serving")
    assert [path.name for path in folder.glob("*serving*")] == [".serving.turn"], "a lock"


def test_asking_without_a_published_model_says_which_there_are(home):
    forget_model(home / "ann", "first")
    with pytest.raises(DataError, match="there are: none"), asking_locally(home / "federation.toml"):
        pass


def test_somebody_else_may_ask_if_the_run_lets_them(tmp_path):
    home = trained(tmp_path, parties=("ann", "bob"), run='[serving]\nmay_ask = ["bob"]\n')
    with asking_locally(home / "federation.toml", party="bob") as asker:
        answers = asker.ask(AskedRows(texts(["r1", "bob-1"])))
    assert answers.has_score.tolist() == [True, False]
    assert set(answers.prediction) <= {"yes", "no"}
    with pytest.raises(SettingsError, match="may not ask"), asking_locally(home / "federation.toml"):
        pass


def test_calibrations_of_single_absences_are_fitted_before_the_first_question(tmp_path):
    home = trained(tmp_path, run='[serving]\nabsent = "calibrated"\n')
    with asking_locally(home / "federation.toml") as asker:
        answers = asker.ask(AskedRows(texts(["r1", "ann-1", "bob-1"])))
    kept = json.loads((home / "ann" / "runs" / "first" / "absence.json").read_text())
    assert kept["without"].keys() >= {"ann", "bob", "cid"}
    assert answers.has_score.tolist() == [True, True, True]
    assert [answers.missing_text(each) for each in answers.lacks] == ["", "bob,cid", "ann,cid"]
