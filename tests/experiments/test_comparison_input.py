import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

import fdml
from fdml.data.rows import to_dense, width
from fdml.errors import SettingsError
from fdml.experiments.comparison_input import contenders, from_data_file, from_frames, from_run_file
from fdml.settings import GuardSettings, TrainingSettings
from fdml.settings.data import DataSettings
from tests.federation.folders import EPOCHS, ROWS, write_run


def test_a_run_file_gives_the_joined_rows_the_models_and_the_seed(tmp_path):
    problem, (contender,), seed = from_run_file(write_run(tmp_path))
    assert seed == 7
    assert (problem.label_party, problem.encoding.task, problem.loss) == ("ann", "binary", "logistic")
    assert len(problem.train) + len(problem.test) == ROWS
    assert (contender.name, contender.training.epochs, contender.guards) == ("LR", EPOCHS, {})
    assert list(contender.models) == list(problem.train.parts) == ["ann", "bob"]


def test_parties_with_different_kinds_of_model_are_one_contender(tmp_path):
    run = write_run(tmp_path)
    with (tmp_path / "bob" / "party.toml").open("a") as file:
        file.write('[model]\nkind = "mlp"\n[guard]\nclip = 2.0\n')
    _, (contender,), _ = from_run_file(run)
    assert contender.name == "LR+NN"
    assert contender.guards == {"bob": GuardSettings(clip=2.0)}


def test_a_party_without_its_folder_is_named(tmp_path):
    run = write_run(tmp_path)
    (tmp_path / "bob" / "party.toml").unlink()
    with pytest.raises(SettingsError, match=r"party 'bob' .* has no file .*every party needs its folder beside"):
        from_run_file(run)


def test_a_folder_of_another_party_is_named(tmp_path):
    run = write_run(tmp_path)
    path = tmp_path / "bob" / "party.toml"
    path.write_text(path.read_text().replace('party = "bob"', 'party = "ann"'))
    with pytest.raises(SettingsError, match="party is 'ann', but its folder is 'bob'; use one name"):
        from_run_file(run)


@pytest.fixture
def table(tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 4))
    lines = [",".join(map(str, [*row, int(row.sum() > 0)])) for row in X]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    return DataSettings(path=tmp_path / "data.csv", label="y")


def widths(problem):
    return {name: width(rows) for name, rows in problem.train.parts.items()}


def test_the_columns_of_a_file_are_cut_in_two_unless_groups_are_given(table):
    problem = from_data_file(table, None, None, 0.25, 0)
    assert widths(problem) == {"party 0": 2, "party 1": 2}
    assert problem.label_party == "party 0"
    assert (len(problem.train), len(problem.test)) == (30, 10)


def test_groups_of_columns_are_the_parties(table):
    assert widths(from_data_file(table, "a;b,c;d", None, 0.25, 0)) == {"party 0": 1, "party 1": 2, "party 2": 1}


def test_the_task_is_guessed_from_the_labels_unless_it_is_given(table):
    assert from_data_file(table, None, None, 0.25, 0).encoding.task == "binary"
    assert from_data_file(table, None, "regression", 0.25, 0).encoding.task == "regression"


def test_a_loss_says_which_task_it_is_of(table):
    problem = from_data_file(table, None, None, 0.25, 0, loss="poisson")
    assert (problem.encoding.task, problem.encoding.link, problem.loss) == ("regression", "log", "poisson")
    assert from_data_file(table, None, None, 0.25, 0, loss="quantile(0.9)").loss == "quantile(0.9)"
    with pytest.raises(
        SettingsError, match="there is no loss 'gamma'; there are logistic, hinge, pairwise, softmax, squared"
    ):
        from_data_file(table, None, None, 0.25, 0, loss="gamma")
    with pytest.raises(SettingsError, match="loss 'poisson' does not fit task 'binary'"):
        from_data_file(table, None, "binary", 0.25, 0, loss="poisson")


def test_a_contender_for_every_kind_has_it_at_every_party():
    training = TrainingSettings(epochs=2)
    found = contenders(["linear", "mlp"], ["p", "q"], training, 0.5)
    assert [each.name for each in found] == ["LR", "NN"]
    for each in found:
        assert each.training is training
        assert list(each.models) == ["p", "q"]
        assert {model.l2 for model in each.models.values()} == {0.5}


def test_class_weights_by_name_become_weights_by_number(tmp_path):
    run = write_run(tmp_path, training="[training.class_weight]\nyes = 3.0\n")
    _, (contender,), _ = from_run_file(run)
    assert contender.training.class_weight == {"1": 3.0}


# Frames


def parts(rows=60):
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 2))
    order = random.permutation(rows)
    one = pd.DataFrame({"who": np.arange(rows), "x": x[:, 0], "good": np.where(x.sum(axis=1) > 0, "yes", "no")})
    two = pl.DataFrame({"who": np.arange(rows)[order], "z": x[order, 1], "code": random.integers(0, 3, rows)})
    return {"one": one, "two": two}


def test_frames_of_parties_are_joined_by_id():
    problem = from_frames(parts(), id="who", label="good", data={"two": {"categorical": ["code"]}})
    assert problem.label_party == "one"
    assert (problem.encoding.task, problem.encoding.classes.tolist()) == ("binary", ["no", "yes"])
    assert (len(problem.train), len(problem.test)) == (48, 12)
    one, two = (to_dense(rows) for rows in problem.train.parts.values())
    assert (one.shape[1], two.shape[1]) == (1, 4)
    score = one[:, 0] + two[:, 0]
    assert roc_auc_score(problem.train.labels, score) > 0.95, "the rows of one party would not be the other's"


def test_frames_without_ids_are_joined_by_position():
    frames = parts()
    two = frames["two"].sort("who").drop("who", "code")
    problem = from_frames({"one": frames["one"].drop(columns="who"), "two": two}, label="good", task="binary")
    assert len(problem.train) + len(problem.test) == 60


def test_the_public_names_compare_frames_from_one_end_to_the_other():
    problem = fdml.from_frames(parts(), id="who", label="good")
    (contender,) = fdml.contenders(["linear"], list(problem.train.parts))
    assert (contender.name, contender.training) == ("LR", TrainingSettings())
    curves = fdml.compare(problem, fdml.contenders(["linear"], ["one", "two"], TrainingSettings(epochs=5)), seeds=[0])
    figures = {curve.scheme: curve.last.test_metric for curve in curves}
    assert set(figures) == {"alone", "late fusion", "pooled", "joint"}
    assert figures["joint"] > figures["alone"]
