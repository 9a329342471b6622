from pathlib import Path

import pytest
from pydantic import ValidationError

from fdml.errors import SettingsError
from fdml.settings import (
    LOSSES_OF,
    DataSettings,
    ModelSettings,
    PartySettings,
    RunSettings,
    TrainingSettings,
    loss_for,
    read_party,
    read_run,
)

RUN = """
name = "app-store"
server = "127.0.0.1:7443"
parties = ["store", "browser", "guard"]
label_party = "store"
task = "binary"

[training]
epochs = 10
batch_size = 100
batches_per_block = 16
lookahead = 1
staleness = 0
learning_rate = 0.5
seed = 7
"""
PARTY = """
party = "browser"
run = "../run.toml"

[data]
path = "browser.parquet"
id = ["user_id", "app_id"]

[model]
kind = "linear"
l2 = 1e-5
"""


@pytest.fixture
def write(tmp_path):
    def make(text, name="run.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return make


def run(**changes):
    return RunSettings(**{"parties": ["a", "b"], "label_party": "a", **changes})


def test_the_designs_run_toml_is_read(write):
    settings = read_run(write(RUN))
    assert settings.parties == ("store", "browser", "guard")
    assert settings.training.epochs == 10
    assert settings.training.passes == 1


def test_the_designs_party_toml_is_read_with_paths_from_its_own_folder(write, tmp_path, monkeypatch):
    path = write(PARTY, "party.toml")
    monkeypatch.chdir("/")
    settings = read_party(path)
    assert settings.data.path == tmp_path / "browser.parquet"
    assert settings.data.test_path is None
    assert settings.run == tmp_path / "../run.toml"
    assert settings.data.id == ("user_id", "app_id")
    assert settings.model.l2 == 1e-5


def test_a_test_file_is_looked_for_beside_the_party_toml_too(write, tmp_path):
    text = PARTY.replace("[model]", 'test_path = "more/test.parquet"\n[model]')
    assert read_party(write(text, "party.toml")).data.test_path == tmp_path / "more/test.parquet"


def test_an_absolute_path_stays(write):
    text = PARTY.replace("browser.parquet", "/data/browser.parquet")
    assert read_party(write(text, "party.toml")).data.path == Path("/data/browser.parquet")


def test_one_name_stands_for_a_list_of_one():
    assert DataSettings(path="x.csv", id="user_id").id == ("user_id",)


def test_an_unknown_key_is_refused_with_the_nearest_name(write):
    path = write(RUN.replace("batch_size", "batchsize"))
    with pytest.raises(
        SettingsError, match=r"run\.toml: \[training\] unknown setting 'batchsize'; did you mean 'batch_size'\?"
    ):
        read_run(path)


def test_an_unknown_key_like_no_other_is_refused_with_all_that_are_known():
    with pytest.raises(SettingsError, match="unknown setting 'zzz'; known here: kind, hidden, factors, l2"):
        ModelSettings(zzz=1)


def test_a_key_named_like_pythons_own_is_refused_as_any_other(write):
    with pytest.raises(SettingsError, match="unknown setting 'self'"):
        read_run(write("self = 1\n" + RUN))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", 0, "setting 'epochs' is 0: input should be greater than 0"),
        (
            "epochs",
            2.5,
            "setting 'epochs' is 2.5: input should be a valid integer, got a number with a fractional part",
        ),
        ("batch_size", -3, "setting 'batch_size' is -3: input should be greater than 0"),
        ("batches_per_block", 0, "setting 'batches_per_block' is 0: input should be greater than 0 or 'all'"),
        ("batches_per_block", "al", "setting 'batches_per_block' is 'al': input should be a valid integer or 'all'"),
        ("passes", 0, "setting 'passes' is 0: input should be greater than 0"),
        ("lookahead", -1, "setting 'lookahead' is -1: input should be greater than or equal to 0"),
        ("staleness", -1, "setting 'staleness' is -1: input should be greater than or equal to 0"),
        ("echo", -1, "setting 'echo' is -1: input should be greater than or equal to 0"),
        ("learning_rate", "aut", "setting 'learning_rate' is 'aut': input should be a valid number or 'auto'"),
        ("learning_rate", float("inf"), "setting 'learning_rate' is inf: input should be a finite number or 'auto'"),
        ("learning_rate", float("nan"), "setting 'learning_rate' is nan: input should be a finite number or 'auto'"),
        ("decay", "cubic", "setting 'decay' is 'cubic': input should be 'linear', 'sqrt' or 'constant'"),
        ("seed", -1, "setting 'seed' is -1: input should be greater than or equal to 0"),
        ("seed", 2**63, "setting 'seed' is 9223372036854775808: input should be less than 9223372036854775808"),
        ("patience", 0, "setting 'patience' is 0: input should be greater than 0"),
        ("patience", float("inf"), "setting 'patience' is inf: input should be a finite number"),
    ],
)
def test_a_training_value_out_of_range_is_named_with_what_to_write(key, value, message):
    with pytest.raises(SettingsError) as caught:
        TrainingSettings(**{key: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "tree", "setting 'kind' is 'tree': input should be 'linear', 'fm', 'mlp' or 'torch'"),
        ("hidden", [], "setting 'hidden' is []: tuple should have at least 1 item after validation, not 0"),
        ("hidden", [8, 0], "setting 'hidden' is 0: input should be greater than 0"),
        ("factors", 0, "setting 'factors' is 0: input should be greater than 0"),
        ("l2", -1.0, "setting 'l2' is -1.0: input should be greater than or equal to 0"),
        ("momentum", 1.0, "setting 'momentum' is 1.0: input should be less than 1"),
        ("rule", "sgdd", "setting 'rule' is 'sgdd': input should be 'sgd', 'momentum', 'adagrad' or 'adam'"),
        ("precision", "half", "setting 'precision' is 'half': input should be 'single' or 'double'"),
    ],
)
def test_a_model_value_out_of_range_is_named_with_what_to_write(key, value, message):
    with pytest.raises(SettingsError) as caught:
        ModelSettings(**{key: value})
    assert str(caught.value) == message


def test_a_torch_model_needs_a_module():
    with pytest.raises(SettingsError, match=r'model.kind = "torch" needs model.module = "package.module:function"'):
        ModelSettings(kind="torch")
    assert ModelSettings(kind="torch", module="nets:small").module == "nets:small"


def test_a_value_inside_a_section_is_named_with_the_section(write):
    path = write(RUN.replace("epochs = 10", "epochs = 0"))
    with pytest.raises(
        SettingsError, match=r"run\.toml: \[training\] setting 'epochs' is 0: input should be greater than 0"
    ):
        read_run(path)


@pytest.mark.parametrize("holdout", [0.0, 1.0])
def test_a_holdout_leaves_rows_on_both_sides(holdout):
    with pytest.raises(SettingsError, match=rf"\[evaluation\] setting 'holdout' is {holdout}: input should be"):
        run(evaluation={"holdout": holdout})


@pytest.mark.parametrize("key", ["parties", "label_party"])
def test_a_missing_key_is_named(write, key):
    text = "\n".join(line for line in RUN.splitlines() if not line.startswith(key))
    with pytest.raises(SettingsError, match=rf"run\.toml: setting '{key}' is missing"):
        read_run(write(text))


def test_a_missing_key_of_a_section_is_named_with_it(write):
    with pytest.raises(SettingsError, match=r"party\.toml: \[data\] setting 'path' is missing"):
        read_party(write(PARTY.replace('path = "browser.parquet"', ""), "party.toml"))


def test_wrong_toml_is_named_with_its_place(write):
    with pytest.raises(SettingsError, match=r"run\.toml: not valid TOML: .*line 1"):
        read_run(write("name = \n"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no file '.*nowhere\.toml'"):
        read_run(tmp_path / "nowhere.toml")


def test_a_folder_or_a_file_that_is_no_text_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"cannot be read: .*Is a directory"):
        read_run(tmp_path)
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="cannot be read: 'utf-8' codec"):
        read_run(tmp_path / "run.toml")


def test_the_label_party_is_one_of_the_parties():
    with pytest.raises(SettingsError, match="label_party 'c' is not among the parties a, b"):
        run(label_party="c")


def test_every_party_has_its_own_name():
    with pytest.raises(SettingsError, match="party 'b' is listed twice; give every party its own name"):
        run(parties=["a", "b", "b"])


def test_a_run_has_parties():
    with pytest.raises(SettingsError, match=r"setting 'parties' is .*: tuple should have at least 1 item"):
        run(parties=[])


def test_a_loss_must_fit_the_task():
    with pytest.raises(SettingsError, match="loss 'softmax' does not fit task 'binary'; it takes logistic or hinge"):
        run(loss="softmax")


@pytest.mark.parametrize("task", LOSSES_OF)
def test_every_task_has_a_loss_of_its_own(task):
    assert loss_for(task, None) == LOSSES_OF[task][0]
    for loss in LOSSES_OF[task]:
        assert loss_for(task, loss) == loss
        assert run(task=task, loss=loss).loss == loss


@pytest.mark.parametrize(("kind", "key"), [(TrainingSettings(), "epochs"), (ModelSettings(), "kind"), (run(), "name")])
def test_settings_are_frozen(kind, key):
    with pytest.raises(ValidationError, match="frozen"):
        setattr(kind, key, getattr(kind, key))


def test_a_party_toml_needs_a_party_and_a_run():
    with pytest.raises(SettingsError, match="setting 'party' is missing"):
        PartySettings(run="run.toml", data={"path": "x.csv"})
