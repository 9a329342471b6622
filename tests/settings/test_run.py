import hashlib
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from fdml.errors import SettingsError
from fdml.models.registry import model_settings
from fdml.party.settings import PartySettings, read_party
from fdml.settings import (
    GradientGuardSettings,
    GuardSettings,
    PrivacySettings,
    RunSettings,
    TrainingSettings,
    run_hash,
)
from fdml.settings.choices import LOSSES_OF
from fdml.settings.data import DataSettings
from fdml.settings.evaluation import EvaluationSettings
from fdml.settings.federation import read_run
from fdml.settings.hash import training_hash
from fdml.settings.losses import loss_for

FEDERATION = """
name = "app-store"
server = "127.0.0.1:7443"
parties = ["store", "browser", "guard"]
"""
RUN = """
name = "first"
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
federation = "../federation.toml"

[data]
path = "browser.parquet"
id = ["user_id", "app_id"]

[model]
kind = "linear"
l2 = 1e-5
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION, encoding="utf-8")

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
    assert settings.federation == tmp_path / "../federation.toml"
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
    with pytest.raises(SettingsError, match="unknown setting 'zzz'; known here: holdout, every"):
        EvaluationSettings(zzz=1)


def test_a_key_named_like_pythons_own_is_refused_as_any_other(write):
    with pytest.raises(SettingsError, match="unknown setting 'self'"):
        read_run(write("self = 1\n" + RUN))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", 0, "setting 'epochs' is 0: input should be greater than 0 or 'auto'"),
        (
            "epochs",
            2.5,
            "setting 'epochs' is 2.5: input should be a valid integer, got a number with a fractional part or 'auto'",
        ),
        ("batch_size", -3, "setting 'batch_size' is -3: input should be greater than 0 or 'auto'"),
        ("batches_per_block", 0, "setting 'batches_per_block' is 0: input should be greater than 0 or 'all' or 'auto'"),
        (
            "batches_per_block",
            "al",
            "setting 'batches_per_block' is 'al': input should be a valid integer or 'all' or 'auto'",
        ),
        ("passes", 0, "setting 'passes' is 0: input should be greater than 0"),
        ("lookahead", -1, "setting 'lookahead' is -1: input should be greater than or equal to 0 or 'auto'"),
        ("staleness", -1, "setting 'staleness' is -1: input should be greater than or equal to 0"),
        ("echo", -1, "setting 'echo' is -1: input should be greater than or equal to 0"),
        ("learning_rate", "aut", "setting 'learning_rate' is 'aut': input should be a valid number or 'auto'"),
        ("learning_rate", float("inf"), "setting 'learning_rate' is inf: input should be a finite number or 'auto'"),
        ("learning_rate", float("nan"), "setting 'learning_rate' is nan: input should be a finite number or 'auto'"),
        ("lr_decay", "cubic", "setting 'lr_decay' is 'cubic': input should be 'linear', 'sqrt' or 'constant'"),
        ("seed", -1, "setting 'seed' is -1: input should be greater than or equal to 0"),
        ("seed", 2**63, "setting 'seed' is 9223372036854775808: input should be less than 9223372036854775808"),
        ("peer_timeout_seconds", 0, "setting 'peer_timeout_seconds' is 0: input should be greater than 0"),
        (
            "peer_timeout_seconds",
            float("inf"),
            "setting 'peer_timeout_seconds' is inf: input should be a finite number",
        ),
    ],
)
def test_a_training_value_out_of_range_is_named_with_what_to_write(key, value, message):
    with pytest.raises(SettingsError) as caught:
        TrainingSettings(**{key: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "tree", "there is no model kind 'tree'; there are linear, fm, mlp, torch, trees, trees+mlp"),
        ("l2", -1.0, "setting 'l2' is -1.0: input should be greater than or equal to 0 or 'auto'"),
        ("momentum", 1.0, "setting 'momentum' is 1.0: input should be less than 1"),
        (
            "optimizer",
            "sgdd",
            "setting 'optimizer' is 'sgdd': input should be 'sgd', 'momentum', 'adagrad', 'adam' or 'factored' or 'auto'",
        ),
        ("precision", "half", "setting 'precision' is 'half': input should be 'single' or 'double'"),
    ],
)
def test_a_model_value_out_of_range_is_named_with_what_to_write(key, value, message):
    with pytest.raises(SettingsError) as caught:
        model_settings(**{key: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("mlp", "hidden", [], "setting 'hidden' is []: tuple should have at least 1 item after validation, not 0"),
        ("mlp", "hidden", [8, 0], "setting 'hidden' is 0: input should be greater than 0"),
        ("fm", "factors", 0, "setting 'factors' is 0: input should be greater than 0"),
    ],
)
def test_a_value_of_a_kinds_own_setting_out_of_range_is_named_with_what_to_write(kind, key, value, message):
    with pytest.raises(SettingsError) as caught:
        model_settings(kind, **{key: value})
    assert str(caught.value) == message


def test_a_torch_model_needs_a_module():
    with pytest.raises(SettingsError, match=r"setting 'module' of model kind 'torch' is missing"):
        model_settings("torch")
    assert model_settings("torch", module="nets:small").module == "nets:small"


def test_a_value_inside_a_section_is_named_with_the_section(write):
    path = write(RUN.replace("epochs = 10", "epochs = 0"))
    with pytest.raises(
        SettingsError, match=r"run\.toml: \[training\] setting 'epochs' is 0: input should be greater than 0 or 'auto'"
    ):
        read_run(path)


@pytest.mark.parametrize("holdout", [0.0, 1.0])
def test_a_holdout_leaves_rows_on_both_sides(holdout):
    with pytest.raises(SettingsError, match=rf"\[evaluation\] setting 'holdout' is {holdout}: input should be"):
        run(evaluation={"holdout": holdout})


def test_a_missing_key_is_named(write):
    text = "\n".join(line for line in RUN.splitlines() if not line.startswith("label_party"))
    with pytest.raises(SettingsError, match=r"run\.toml: setting 'label_party' is missing"):
        read_run(write(text))


def test_a_missing_key_of_a_section_is_named_with_it(write):
    text = PARTY + "[guard.training]\nclip = 1.0\n"
    with pytest.raises(SettingsError, match=r"party\.toml: \[guard\] \[training\] setting 'sigma' is missing"):
        read_party(write(text, "party.toml"))


def test_rows_may_be_elsewhere_than_in_party_toml(write):
    data = read_party(write(PARTY.replace('path = "browser.parquet"', ""), "party.toml")).data
    assert (data.path, data.query) == (None, None)


@pytest.mark.parametrize("location", ["s3://bucket/rows", "gs://bucket/rows/*.parquet"])
def test_an_address_is_not_taken_for_a_path(write, location):
    data = read_party(write(PARTY.replace("browser.parquet", location), "party.toml")).data
    assert data.path == location


WRONG_DATA = {
    "path and query": ({"path": "x", "query": "select 1"}, "data.path and data.query are both set"),
    "test_path of a query": ({"query": "select 1", "test_path": "x"}, "give the test rows of a query in data.test_query"),
    "driver without query": ({"path": "x", "driver": "adbc_driver_sqlite"}, "data.driver is set but no query"),
    "any module": ({"query": "select 1", "driver": "os"}, "setting 'driver' is 'os'"),
    "driver without address": ({"query": "select 1", "driver": "adbc_driver_postgresql"}, "needs the database's address: set data.connection"),
    "attach of PostgreSQL": ({"query": "s", "driver": "adbc_driver_postgresql", "attach": "x.db"}, "takes an address; set data.connection"),
    "two places": ({"query": "s", "driver": "adbc_driver_sqlite", "attach": "x.db", "connection": "DB"}, "needs the database's address"),
    "connection of DuckDB": ({"query": "s", "connection": "DB"}, "data.connection needs a driver"),
    "long delimiter": ({"path": "x", "delimiter": ";;"}, "data.delimiter is ';;'; it is one character"),
    "encoding": ({"path": "x", "encoding": "klingon"}, "data.encoding is 'klingon'; try"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_DATA)
def test_data_settings_that_do_not_fit_together_are_named(case):
    values, message = WRONG_DATA[case]
    with pytest.raises(SettingsError, match=message):
        DataSettings(**values)


def test_an_address_in_place_of_a_variable_is_refused_and_not_repeated():
    with pytest.raises(SettingsError, match="no name of an environment variable") as raised:
        DataSettings(query="s", driver="adbc_driver_postgresql", connection="postgresql://me:hidden-one@db/bank")
    assert "hidden-one" not in str(raised.value)


def test_paths_of_data_start_at_the_folder_of_party_toml(write):
    text = PARTY.replace('path = "browser.parquet"', 'query = "select 1"\nattach = "bank.duckdb"')
    path = write(text, "party.toml")
    data = read_party(path).data
    assert (data.attach, data.folder) == (path.parent / "bank.duckdb", path.parent)


def test_one_settings_file_given_for_the_other_is_told_apart(write):
    with pytest.raises(SettingsError, match=r"party\.toml: this is a party\.toml; give the run\.toml"):
        read_run(write(PARTY, "party.toml"))
    with pytest.raises(SettingsError, match=r"run\.toml: this is a run\.toml; give the party\.toml"):
        read_party(write(RUN, "run.toml"))
    with pytest.raises(SettingsError, match=r"federation\.toml: this is a federation\.toml; give the party\.toml"):
        read_party(write(FEDERATION, "federation.toml"))


def test_a_party_toml_of_before_is_told_what_to_write(write):
    said = r'party\.toml: `run` gives way to `federation`; write federation = "\.\./federation\.toml" in its place'
    with pytest.raises(SettingsError, match=said):
        read_party(write(PARTY.replace("federation = ", "run = "), "party.toml"))


def test_wrong_toml_is_named_with_its_place(write):
    with pytest.raises(SettingsError, match=r"run\.toml: not valid TOML: .*line 1"):
        read_run(write("name = \n"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no file '.*nowhere\.toml'"):
        read_run(tmp_path / "nowhere.toml")


def test_a_folder_or_a_file_that_is_no_text_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"is a folder; name the file in it: federation.toml, run.toml or"):
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


NO_NAMES = [
    "../../x",
    "/etc/x",
    "",
    ".",
    "..",
    "a/b",
    "a\x1b[2J",
    "two\nlines",
    " a",
    "a ",
    "[/x]",
    "ü",
    "n" * 65,
    "-x",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_could_leave_a_folder_or_steer_a_terminal_is_refused(name):
    """Finding 21: `fdml simulate` with a path as a party's name wrote outside its folder."""
    with pytest.raises(SettingsError, match=r"party name .* cannot name a folder; use at most 64 letters") as refused:
        run(parties=["a", "b", name])
    assert str(refused.value).isprintable()
    with pytest.raises(SettingsError, match=r"run name .* cannot name a folder"):
        run(name=name)


@pytest.mark.parametrize("name", ["server", "authority"])
def test_a_party_has_no_name_of_another_role(name):
    """Finding 21."""
    with pytest.raises(SettingsError, match=f"party name '{name}' is taken"):
        run(parties=["a", "b", name])


@pytest.mark.parametrize("name", ["a", "store-2", "a.b_c", "party 0", "7", "n" * 64])
def test_usual_names_are_taken(name):
    assert run(parties=["a", "b", name + "x" if name in "ab" else name], name=name).name == name


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
        privacy = {"labels": "private"} if loss == "pairwise" else {}
        assert run(task=task, loss=loss, privacy=privacy).loss == loss


@pytest.mark.parametrize(("kind", "key"), [(TrainingSettings(), "epochs"), (model_settings(), "kind"), (run(), "name")])
def test_settings_are_frozen(kind, key):
    with pytest.raises(ValidationError, match="frozen"):
        setattr(kind, key, getattr(kind, key))


def test_a_party_toml_needs_a_party():
    with pytest.raises(SettingsError, match="setting 'party' is missing"):
        PartySettings(federation="federation.toml", data={"path": "x.csv"})


# Privacy.


def test_the_designs_privacy_and_guard_are_read(write):
    run_toml = read_run(write(RUN + '[privacy]\nlabels = "shared"\nserver = "plain"\n'))
    assert run_toml.privacy == PrivacySettings()
    guard = '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 8.0\nepsilon = 8.0\n'
    party = read_party(write(PARTY + guard, "party.toml"))
    assert party.guard == GuardSettings(clip=2.0, noise="gaussian", sigma=8.0, epsilon=8.0)
    assert party.guard.delta == 1e-5


def test_a_guard_with_noise_in_training_is_read(write):
    guard = """
[guard]
clip = 3
noise = "laplace"
sigma = "auto"
epsilon = 4
delta = 1e-6
evaluation = "exact"

[guard.training]
clip = 1
sigma = 20
"""
    party = read_party(write(PARTY + guard, "party.toml"))
    assert party.guard.training == GradientGuardSettings(clip=1.0, sigma=20.0)
    assert (party.guard.sigma, party.guard.evaluation, party.guard.delta) == ("auto", "exact", 1e-6)


def test_without_a_word_nothing_is_guarded_and_labels_are_shared():
    assert PartySettings(party="a", federation="federation.toml", data={"path": "x.csv"}).guard == GuardSettings()
    guard = GuardSettings()
    assert (guard.clip, guard.noise, guard.sigma, guard.epsilon, guard.training) == (None, "none", None, None, None)
    assert guard.evaluation == "guarded"
    privacy = run().privacy
    assert (privacy.labels, privacy.server, privacy.label_epsilon) == ("shared", "plain", 2.0)


def test_a_clip_needs_no_noise():
    assert GuardSettings(clip=2.0).noise == "none"


NOISE = {"clip": 2.0, "noise": "gaussian", "sigma": 8.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "none"}, 'guard.sigma is set but no noise; set guard.noise = "gaussian"'),
        (
            {"noise": "none", "sigma": None, "epsilon": 4.0},
            'guard.epsilon is set but no noise; set guard.noise = "gaussian"',
        ),
        ({"clip": None}, "guard.noise protects only predictions of limited size; set guard.clip, 3.0 for one"),
        ({"sigma": None}, 'guard.noise needs guard.sigma: a number, or "auto" with guard.epsilon as the budget'),
        ({"sigma": "auto"}, 'guard.sigma = "auto" needs guard.epsilon, the budget to keep to'),
        ({"clip": 0.0}, "setting 'clip' is 0.0: input should be greater than 0"),
        ({"clip": float("inf")}, "setting 'clip' is inf: input should be a finite number"),
        ({"sigma": -1.0}, "setting 'sigma' is -1.0: input should be greater than 0 or 'auto'"),
        ({"sigma": "aut"}, "setting 'sigma' is 'aut': input should be a valid number or 'auto'"),
        ({"epsilon": 0.0}, "setting 'epsilon' is 0.0: input should be greater than 0"),
        ({"delta": 0.0}, "setting 'delta' is 0.0: input should be greater than 0"),
        ({"delta": 1.0}, "setting 'delta' is 1.0: input should be less than 1"),
        ({"noise": "uniform"}, "setting 'noise' is 'uniform': input should be 'none', 'gaussian' or 'laplace'"),
        ({"evaluation": "open"}, "setting 'evaluation' is 'open': input should be 'guarded' or 'exact'"),
        ({"training": {"clip": 1.0}}, "[training] setting 'sigma' is missing"),
        ({"training": {"clip": 0.0, "sigma": 1.0}}, "[training] setting 'clip' is 0.0: input should be greater than 0"),
        ({"epsilo": 4.0}, "unknown setting 'epsilo'; did you mean 'epsilon'?"),
    ],
)
def test_a_guard_that_cannot_work_says_what_to_write(changes, message):
    with pytest.raises(SettingsError) as caught:
        GuardSettings(**{**NOISE, **changes})
    assert str(caught.value) == message


def test_an_error_of_the_guard_is_named_with_its_section(write):
    with pytest.raises(SettingsError, match=r"party\.toml: \[guard\] guard\.sigma is set but no noise"):
        read_party(write(PARTY + "[guard]\nsigma = 1.0\n", "party.toml"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("labels", "secret", "setting 'labels' is 'secret': input should be 'shared' or 'private'"),
        ("server", "deaf", "setting 'server' is 'deaf': input should be 'plain' or 'blind'"),
        ("label_epsilon", 0.0, "setting 'label_epsilon' is 0.0: input should be greater than 0 or 'off'"),
        ("label_epsilon", "none", "setting 'label_epsilon' is 'none': input should be a valid number or 'off'"),
    ],
)
def test_a_privacy_value_out_of_range_is_named_with_what_to_write(key, value, message):
    with pytest.raises(SettingsError) as caught:
        PrivacySettings(**{key: value})
    assert str(caught.value) == message
    assert PrivacySettings(label_epsilon="off").label_epsilon == "off"


@pytest.mark.parametrize(
    ("task", "loss", "named"), [("binary", "hinge", "hinge"), ("regression", None, "squared"), ("binary", None, None)]
)
def test_private_labels_need_a_loss_whose_gradient_tells_enough(task, loss, named):
    chosen = {"task": task, "loss": loss, "privacy": {"labels": "private"}}
    if named is None:
        assert run(**chosen).privacy.labels == "private"
        return
    with pytest.raises(
        SettingsError, match=rf'labels = "private" cannot train with loss \'{named}\'; it takes logistic or softmax'
    ):
        run(**chosen)
    assert run(**{**chosen, "privacy": {"labels": "shared"}}).task == task


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize(
    ("privacy", "staleness"), [({"server": "blind"}, 1), ({"server": "blind", "labels": "private"}, 0)]
)
def test_few_bits_under_masks_need_totals_that_all_parties_have(bits, privacy, staleness):
    training = {"value_bits": bits, "staleness": staleness}
    words = rf'value_bits = {bits} with server = "blind" takes staleness = 0 and labels = "shared", .* value_bits = 16'
    with pytest.raises(SettingsError, match=words):
        run(privacy=privacy, training=training)
    assert run(privacy=privacy, training={**training, "value_bits": 16}).training.value_bits == 16
    assert run(privacy={**privacy, "server": "plain"}, training=training).training.value_bits == bits


def test_private_labels_and_few_exchanges_do_not_go_together():
    with pytest.raises(
        SettingsError,
        match=r'labels = "private" leaves nothing to learn from between exchanges; leave training.exchanges',
    ):
        run(privacy={"labels": "private"}, training={"exchanges": 2})


@pytest.mark.parametrize(("name", "value"), [("batches_per_block", 16), ("passes", 1), ("lookahead", 1)])
def test_exchanges_take_the_place_of_how_blocks_are_exchanged(name, value):
    """Even where the value is the default: who writes it expects it to matter."""
    with pytest.raises(
        SettingsError, match=f"training.exchanges takes the place of training.{name}; leave one of them out"
    ):
        TrainingSettings(exchanges=3, **{name: value})


@pytest.mark.parametrize("epochs", [1, 4])
def test_exchanges_need_a_pass_before_and_between_them(epochs):
    with pytest.raises(SettingsError) as caught:
        TrainingSettings(exchanges=4, epochs=epochs)
    assert str(caught.value) == (
        f"4 exchanges need at least 5 epochs, there are {epochs}; raise epochs, or lower exchanges"
    )
    assert TrainingSettings(exchanges=4, epochs=5).exchanges == 4


def test_there_is_an_exchange_or_none_are_counted():
    with pytest.raises(SettingsError, match="setting 'exchanges' is 0: input should be greater than 0"):
        TrainingSettings(exchanges=0)
    assert TrainingSettings().exchanges is None


def test_held_out_rows_are_evaluated_after_every_epoch_or_at_the_end():
    assert [EvaluationSettings(every=each).every for each in ("epoch", "end", None)] == ["epoch", "end", None]
    with pytest.raises(SettingsError, match="setting 'every' is 'never': input should be 'epoch' or 'end'"):
        EvaluationSettings(every="never")


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": {"server": "blind"}},
        {"privacy": {"labels": "private"}},
        {"privacy": {"label_epsilon": 1.0}},
        {"training": {"exchanges": 2}},
        {"evaluation": {"every": "end"}},
    ],
)
def test_all_sides_must_agree_on_what_is_private(changes):
    """A party that thinks the server blind may not join a run in which it is not."""
    assert run_hash(run(**changes)) != run_hash(run())


def test_how_a_party_guards_itself_is_its_own_affair():
    assert "guard" not in RunSettings.model_fields


# Members.

KEYS = {"a": "sha256:" + "1" * 64, "b": "sha256:" + "2" * 64, "server": "sha256:" + "3" * 64}


def run_with(members):
    return RunSettings(parties=("a", "b"), label_party="a", members=members)


def test_the_members_are_part_of_what_all_agree_on_in_whatever_order_they_stand():
    assert run_hash(run_with(KEYS)) == run_hash(run_with(dict(reversed(KEYS.items()))))
    assert run_hash(run_with(KEYS)) != run_hash(run_with({**KEYS, "b": "sha256:" + "4" * 64}))
    assert run_hash(run_with(KEYS)) != run_hash(run_with({}))


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({name: KEYS[name] for name in ("a", "b")}, r"\[members\] lacks 'server'; `fdml keys members`"),
        ({name: KEYS[name] for name in ("a", "server")}, r"\[members\] lacks 'b'"),
        ({**KEYS, "zed": "sha256:" + "4" * 64}, r"\[members\] names 'zed', which is neither a party nor the server"),
        ({**KEYS, "b": KEYS["a"]}, r"two of the \[members\] have the same key"),
        ({**KEYS, "b": "sha256:12"}, "setting 'members'"),
        ({**KEYS, "b": "2" * 64}, "setting 'members'"),
        ({**KEYS, "b": KEYS["b"].upper()}, "setting 'members'"),
    ],
)
def test_a_table_of_members_that_will_not_do_is_refused(members, text):
    with pytest.raises(SettingsError, match=text):
        run_with(members)


def test_a_party_called_server_cannot_be_told_from_the_server():
    with pytest.raises(SettingsError, match="party name 'server' is taken"):
        RunSettings(parties=("a", "server"), label_party="a", members=KEYS)


def keyed(**settings):
    return RunSettings(parties=["flights", "weather", "planes"], label_party="flights", **settings)


def test_keys_name_columns_of_the_label_party_by_party():
    run = keyed(keys={"weather": ["origin", "hour"], "planes": "tail"})
    assert run.keys == {"planes": ("tail",), "weather": ("origin", "hour")}
    assert run.pointing_party == "flights"
    assert run_hash(run) == run_hash(keyed(keys={"planes": ["tail"], "weather": ["origin", "hour"]}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keys": {"nobody": ["x"]}}, r"\[keys\] names 'nobody', which is not among the parties"),
        ({"keys": {"flights": ["x"]}}, "names the label party 'flights'"),
        ({"keys": {"planes": ["x", "x"]}}, "of party 'planes' names a column twice"),
        ({"keys": {"planes": []}}, "at least 1 item"),
        ({"unmatched": "maybe"}, "'drop' or 'keep'"),
    ],
)
def test_keys_that_cannot_be_are_named(settings, message):
    with pytest.raises(SettingsError, match=message):
        keyed(**settings)


def test_rows_point_to_others_by_keys_or_where_unmatched_ones_are_kept():
    assert keyed().pointing_party is None
    assert keyed(unmatched="keep").pointing_party == "flights"
    assert RunSettings(parties=["a"], label_party="a", unmatched="keep").pointing_party is None


def test_runs_without_later_settings_draw_the_noise_that_they_drew():
    later = {"federation": True, "server": True, "members": True, "keys": True, "unmatched": True}
    later |= {"from_version": True, "new_parties": True, "promotion": True, "search": True, "serving": True}
    later |= {"quantile": True, "host": True, "addresses": True, "comparing_party": True}
    evaluation = {"stop_after", "threshold", "baseline", "against"}
    later |= {"training": {"max_prediction", "class_weight", "absence", "frozen_epochs"}}
    later["training"] |= {"joint", "joint_width", "head_units"}
    later |= {"evaluation": evaluation}
    before = keyed().model_dump_json(exclude=later)
    without = training_hash(keyed())
    assert without == hashlib.blake2b(before.encode(), digest_size=32).digest()
    assert training_hash(keyed(unmatched="keep")) != without
    assert training_hash(keyed(serving={"absent": "calibrated"})) == without
    assert training_hash(keyed(evaluation={"baseline": "none"})) == without
    assert training_hash(keyed(keys={"planes": ["tail"]})) != without
    assert training_hash(keyed(evaluation={"stop_after": 3})) != without
    assert training_hash(keyed(evaluation={"threshold": 0.3})) != without
    assert training_hash(keyed(training={"class_weight": "balanced"})) != without
    assert training_hash(keyed(training={"absence": 0.2})) != without
    assert training_hash(keyed(from_version="a" * 32)) != without
    new = {"from_version": "a" * 32, "new_parties": ["planes"]}
    assert len({training_hash(keyed(**new, training={"frozen_epochs": epochs})) for epochs in (0, 1, 2)}) == 3
    assert training_hash(keyed(evaluation={"against": "a" * 32})) != without
    assert training_hash(keyed(search="rates")) == without


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluation": {"stop_after": 2, "every": "end"}}, "needs the held-out rows after every epoch"),
        ({"evaluation": {"stop_after": 2}, "training": {"exchanges": 2}}, "leave one of them out"),
        ({"evaluation": {"stop_after": 0}}, "stop_after"),
        ({"evaluation": {"threshold": 1.0}}, "threshold"),
        ({"training": {"class_weight": {"yes": 0.0}}}, "class_weight"),
        ({"training": {"class_weight": "even"}}, "class_weight"),
    ],
)
def test_stopping_and_weights_that_cannot_work_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        RunSettings(parties=["a", "b"], label_party="a", **settings)


def test_the_order_of_class_weights_does_not_matter():
    one, other = (
        {"training": {"class_weight": dict(each)}} for each in ((("a", 1.5), ("b", 2.0)), (("b", 2.0), ("a", 1.5)))
    )
    both = [RunSettings(parties=["a"], label_party="a", **each) for each in (one, other)]
    assert run_hash(both[0]) == run_hash(both[1])


def test_settings_with_exchanges_can_be_read_again_from_what_was_set():
    """Runs travel and are stored so: what is written out counts as set."""
    training = TrainingSettings(exchanges=2, epochs=12)
    assert TrainingSettings.model_validate_json(training.model_dump_json(exclude_unset=True)) == training


VERSION = "0123456789abcdef" * 2


def test_from_is_a_version_and_is_what_the_run_is_compared_with_unless_it_says_otherwise():
    run = keyed(**{"from": VERSION})
    assert run.from_version == run.compared_version == VERSION
    assert keyed(**{"from": VERSION}, evaluation={"against": "a" * 32}).compared_version == "a" * 32
    assert keyed().compared_version is None
    assert RunSettings(**run.model_dump()) == run


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"from": "october"}, "from is 'october'; give a version, 32 digits"),
        ({"evaluation": {"against": VERSION.upper()}}, "evaluation.against is '0123456789ABCDEF"),
        ({"from": VERSION, "training": {"exchanges": 2}}, "training.exchanges begins with every party alone"),
        ({"promotion": {}}, "compares with an earlier version; set evaluation.against, or `from`"),
        ({"promotion": {"atleast": 1.0}, "from": VERSION}, "did you mean 'at_least'"),
        ({"search": "a/b"}, "search name 'a/b' cannot name a folder"),
        ({"new_parties": ["planes"]}, "new_parties are new to an earlier version; set evaluation.against, or `from`"),
        ({"new_parties": ["eve"], "from": VERSION}, "new_parties names 'eve', which is not among the parties"),
        ({"new_parties": ["flights"], "from": VERSION}, "new_parties names the label party 'flights'"),
        (
            {"new_parties": ["planes"], "from": VERSION, "training": {"joint": "head"}},
            "every party of the version has a copy, and new_parties have none",
        ),
        ({"from": VERSION, "training": {"frozen_epochs": 2}}, "training.frozen_epochs = 2 lets only new_parties learn"),
        (
            {"new_parties": ["planes"], "evaluation": {"against": VERSION}, "training": {"frozen_epochs": 2}},
            "name them, and the version in `from`",
        ),
        (
            {"new_parties": ["planes"], "from": VERSION, "training": {"frozen_epochs": 3, "epochs": 2}},
            "training.frozen_epochs = 3, and training.epochs = 2; it cannot be more",
        ),
    ],
)
def test_versions_promotion_and_searches_that_cannot_be_are_refused(values, words):
    with pytest.raises(SettingsError, match=re.escape(words)):
        keyed(**values)


def test_the_label_party_tells_how_a_run_ends_where_it_stops_early_or_is_promoted():
    assert not keyed().has_outcome
    assert keyed(evaluation={"stop_after": 2}).has_outcome
    assert keyed(promotion={}, **{"from": VERSION}).has_outcome


def test_who_may_ask_is_agreed_and_is_among_the_parties():
    plain = keyed()
    assert plain.serving.may_ask is None
    assert plain.serving.absent == "fail"
    assert run_hash(keyed(serving={"may_ask": ["planes"]})) != run_hash(plain)
    with pytest.raises(SettingsError, match=r"serving\.may_ask names 'eve', which is not among the parties"):
        keyed(serving={"may_ask": ["eve"]})


@pytest.mark.parametrize("wrong", [{"absent": "mean"}, {"deadline_seconds": 0}, {"may_ask": []}, {"receives": ["a"]}])
def test_serving_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(SettingsError, match="serving"):
        keyed(serving=wrong)
