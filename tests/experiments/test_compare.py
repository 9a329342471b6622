from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdml.cli.compare import compare as compare_command
from fdml.data.rows import as_rows
from fdml.data.table import PartyData, Table
from fdml.errors import SettingsError
from fdml.events import EpochDone, SchemeBegun, SchemeDone
from fdml.experiments.compare import Contender, compare, mean_gains, workload
from fdml.experiments.dataset import build_dataset
from fdml.models.registry import model_settings
from fdml.monitor.history import SCHEMES, Gain
from fdml.privacy.epsilon import gaussian_epsilon
from fdml.privacy.ledger import DIRECT, RECORD_LEVEL
from fdml.settings import GradientGuardSettings, GuardSettings, TrainingSettings

TASKS = {"binary": lambda s: s > 0, "multiclass": lambda s: np.digitize(s, [-1, 1]), "regression": lambda s: 50 + 9 * s}


def dataset_of(task, rows=800, empty_label_party=False):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 6)).astype(np.float32)
    labels = TASKS[task](X @ [1, 1, 1, -1, -1, 1] + random.normal(size=rows) * 0.3)
    names = tuple("abcdef")
    first = (as_rows(X[:, :0]), ()) if empty_label_party else (as_rows(X[:, :3]), names[:3])
    return build_dataset(
        {"p": PartyData(Table(*first, labels=labels)), "q": PartyData(Table(as_rows(X[:, 3:]), names[3:]))},
        "p", task, None, 0.3, 0,
    )  # fmt: skip


def contender(epochs=30):
    return Contender(
        "LR",
        TrainingSettings(epochs=epochs, batch_size=10, learning_rate="auto"),
        dict.fromkeys("pq", model_settings()),
    )


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_joint_comes_near_pooled_and_beats_alone(task):
    problem, events = dataset_of(task), []
    curves = compare(problem, [contender()], [1, 2], events.append)
    last = {curve.scheme: curve.last for curve in curves}
    assert tuple(last) == SCHEMES
    assert last["joint"].test_metric >= last["pooled"].test_metric - 0.01
    assert min(last["joint"].test_metric, last["late fusion"].test_metric) > last["alone"].test_metric + 0.05
    assert max(last["joint"].test_loss, last["late fusion"].test_loss) < last["alone"].test_loss
    assert all(len(curve.records) == 30 for curve in curves)
    assert len([e for e in events if isinstance(e, EpochDone)]) == workload(problem, [contender()], [1, 2])
    begun = [each.scheme for each in events if isinstance(each, SchemeBegun) and each.seed == 1]
    assert begun == ["alone", "pooled", "joint"]
    done = {each.scheme for each in events if isinstance(each, SchemeDone) and each.seed == 2}
    assert done == {curve.scheme for curve in curves}


@pytest.mark.parametrize("task", TASKS)
def test_what_joint_training_brings_is_the_mean_over_seeds_with_its_interval(task):
    curves = {each.scheme: each for each in compare(dataset_of(task), [contender(5)], [1, 2], gains=True)}
    assert set(curves["joint"].gains) == {"alone", "late fusion"}
    for scheme, gain in curves["joint"].gains.items():
        expected = curves["joint"].last.test_metric - curves[scheme].last.test_metric
        assert gain.value == pytest.approx(expected, abs=1e-9)
        assert gain.low < gain.value < gain.high
    assert curves["joint"].gains["alone"].low > 0.0
    assert not any(each.gains for scheme, each in curves.items() if scheme != "joint")


def test_without_a_figure_in_every_run_there_is_no_mean_gain():
    known, unknown = {"alone": Gain(0.5, 0.25, 0.75)}, {"alone": Gain(0.25, None, None)}
    assert mean_gains([known, unknown]) == {"alone": Gain(0.375, None, None)}
    assert mean_gains([]) == {}


def test_a_label_party_without_features_has_no_alone_scheme():
    curves = compare(dataset_of("binary", empty_label_party=True), [contender(2)], [1])
    assert [curve.scheme for curve in curves] == ["late fusion", "pooled", "joint"]


@pytest.mark.slow
def test_training_seconds_grow_through_the_epochs():
    for curve in compare(dataset_of("binary"), [contender()], [1]):
        seconds = [record.seconds for record in curve.records]
        assert seconds == sorted(seconds)
        assert seconds[0] > 0


NOISY = GuardSettings(clip=2.0, noise="gaussian", sigma=8.0)


def figures(curves, *schemes):
    """All figures but the seconds."""
    return [[replace(record, seconds=0.0) for record in each.records] for each in curves if each.scheme in schemes]


def test_guards_bind_joint_training_alone():
    problem, outcomes = dataset_of("binary"), []
    free = compare(problem, [contender(3)], [1])
    guarded = compare(problem, [replace(contender(3), guards={"q": NOISY})], [1], joined=outcomes.append)
    apart = ("alone", "late fusion", "pooled")
    assert figures(guarded, *apart) == figures(free, *apart)
    assert figures(guarded, "joint") != figures(free, "joint")
    (ledgers,) = [outcome.ledgers for outcome in outcomes]
    assert ledgers["q"].worst()[1] == pytest.approx(gaussian_epsilon(2 * 2.0 * np.sqrt(3) / 8.0, 1e-5))
    assert ledgers["p"].worst()[1] == np.inf


def test_what_every_joint_training_leaves_behind_is_handed_out():
    outcomes = []
    compare(dataset_of("binary"), [contender(1), contender(2)], [1, 2], joined=outcomes.append)
    assert [len(outcome.snapshots) for outcome in outcomes] == [1, 1, 2, 2]


@pytest.mark.parametrize(("exchanges", "passes"), [(1, [9]), (2, [6, 9]), (4, [3, 5, 7, 9])])
def test_few_exchanges_bind_joint_training_alone_and_its_epochs_are_passes(exchanges, passes):
    training = TrainingSettings(epochs=9, batch_size=10, learning_rate="auto", exchanges=exchanges)
    few = Contender("LR", training, dict.fromkeys("pq", model_settings()))
    problem, events, outcomes = dataset_of("binary"), [], []
    curves = {each.scheme: each for each in compare(problem, [few], [1, 2], events.append, outcomes.append)}
    assert [record.epoch for record in curves.pop("joint").records] == passes
    assert all([record.epoch for record in each.records] == list(range(1, 10)) for each in curves.values())
    assert len([e for e in events if isinstance(e, EpochDone)]) == workload(problem, [few], [1, 2])
    for ledger in outcomes[0].ledgers.values():
        assert ledger.releases("block 0") == exchanges


def test_one_exchange_with_noise_still_beats_alone():
    training = TrainingSettings(epochs=20, batch_size=10, learning_rate="auto", exchanges=1)
    guard = GuardSettings(clip=3.0, noise="gaussian", sigma="auto", epsilon=5.0)
    few = Contender("LR", training, dict.fromkeys("pq", model_settings()), dict.fromkeys("pq", guard))
    last = {each.scheme: each.last for each in compare(dataset_of("binary"), [few], [1])}
    assert last["joint"].test_metric > last["alone"].test_metric + 0.05


def test_a_budget_that_is_spent_early_ends_the_joint_curve():
    guard = NOISY.model_copy(update={"epsilon": gaussian_epsilon(2 * 2.0 * np.sqrt(2) / 8.0, 1e-5)})
    curves = compare(dataset_of("binary"), [replace(contender(5), guards={"q": guard})], [1, 2])
    assert {each.scheme: len(each.records) for each in curves} == {
        "alone": 5,
        "late fusion": 5,
        "pooled": 5,
        "joint": 2,
    }


def test_a_budget_too_small_for_an_epoch_is_named():
    guard = GuardSettings(
        clip=1.0, noise="gaussian", sigma=50.0, epsilon=1.0, training=GradientGuardSettings(clip=1.0, sigma=0.1)
    )
    models = {"p": model_settings(), "q": model_settings(learning_rate=0.5)}
    with pytest.raises(SettingsError, match=r"budget is spent before the first epoch .* larger guard\.epsilon"):
        compare(dataset_of("binary"), [replace(contender(2), models=models, guards={"q": guard})], [1])


def test_a_step_size_made_of_rows_is_refused_where_noise_in_training_must_cover_them():
    """Finding 3, in Python: the guard of a plan is held to the same as that of a party.toml."""
    guard = GuardSettings(training=GradientGuardSettings(clip=1.0, sigma=0.1))
    with pytest.raises(SettingsError, match=r'learning_rate = "auto" is made of the lengths of all rows'):
        compare(dataset_of("binary"), [replace(contender(2), guards={"q": guard})], [1])


# Four releases at clip 2 and sigma 8 are mu 1, as are four uses at clip 1 and sigma 4; a Laplace release is 2 clip / b.
GUARDS = {
    "none": ("", "", []),
    "one party": (
        "",
        '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 8.0\ndelta = 1e-4\n',
        ["shop has no noise: no epsilon", f"bank spends epsilon {gaussian_epsilon(1.0, 1e-4):.2f} at delta 0.0001 in a run; it covers {DIRECT}"],
    ),
    "a clip only": (
        "[guard]\nclip = 2.0\n",
        "",
        ["shop has no noise: no epsilon", "bank has no noise: no epsilon"],
    ),
    "record level": (
        '[guard]\nclip = 2.0\nnoise = "gaussian"\nsigma = 8.0\n[guard.training]\nclip = 1.0\nsigma = 4.0\n'
        '[data.ranges]\nage = [-3, 3]\n[model]\nlearning_rate = 0.5\n',
        '[guard]\nclip = 1.0\nnoise = "laplace"\nsigma = 2.0\n',
        [f"shop spends epsilon {gaussian_epsilon(2**0.5, 1e-5):.2f} at delta 1e-05 in a run; it covers {RECORD_LEVEL}",
         f"bank spends epsilon 4.00 at delta 1e-05 in a run; it covers {DIRECT}"],
    ),
}  # fmt: skip


def run_folder(folder, shop, bank, training="epochs = 4\n"):
    random = np.random.default_rng(0)
    age, hours = random.normal(size=(2, 400))
    label = np.where(age + hours > 0, "yes", "no")
    text = f'label_party = "shop"\n[training]\nlearning_rate = "auto"\n{training}'
    (folder / "federation.toml").write_text('parties = ["shop", "bank"]\n')
    (folder / "run.toml").write_text(text)
    for name, head, cells, guard in (
        ("shop", "id,age,rich", zip(age, label, strict=True), shop),
        ("bank", "id,hours", zip(hours, strict=True), bank),
    ):
        (folder / name).mkdir()
        lines = [f"{at},{','.join(map(str, row))}" for at, row in enumerate(cells)]
        (folder / name / "data.csv").write_text("\n".join([head, *lines]) + "\n")
        data = '[data]\npath = "data.csv"\nid = "id"\n' + ('label = "rich"\n' if name == "shop" else "")
        (folder / name / "party.toml").write_text(f'party = "{name}"\nfederation = "../federation.toml"\n{data}{guard}')
    return folder / "run.toml"


def said_of_epsilon(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if "epsilon" in line]


@pytest.mark.parametrize("guards", GUARDS)
def test_the_command_says_what_each_party_of_a_guarded_run_spends(tmp_path, capsys, guards):
    shop, bank, lines = GUARDS[guards]
    compare_command(run_folder(tmp_path, shop, bank), seeds=2)
    assert said_of_epsilon(capsys) == lines


def test_the_command_keeps_to_few_exchanges_and_their_budget(tmp_path, capsys):
    guard = '[guard]\nclip = 3.0\nnoise = "gaussian"\nsigma = "auto"\nepsilon = 2.5\n'
    compare_command(run_folder(tmp_path, guard, guard, "epochs = 4\nexchanges = 2\n"))
    assert said_of_epsilon(capsys) == [
        f"{party} spends epsilon 2.50 at delta 1e-05 in a run; it covers {DIRECT}" for party in ("shop", "bank")
    ]


def test_a_comparison_tells_what_it_trains_and_what_came_of_it():
    problem, events = dataset_of("binary"), []
    curves = {each.scheme: each for each in compare(problem, [contender()], [1], events.append)}
    told = [each for each in events if isinstance(each, SchemeBegun | SchemeDone)]
    assert [(type(each).__name__, each.scheme) for each in told] == [
        ("SchemeBegun", "alone"),
        ("SchemeDone", "alone"),
        ("SchemeDone", "late fusion"),
        ("SchemeBegun", "pooled"),
        ("SchemeDone", "pooled"),
        ("SchemeBegun", "joint"),
        ("SchemeDone", "joint"),
    ]
    for each in told:
        assert (each.model, each.seed) == (contender().name, 1)
        if isinstance(each, SchemeDone):
            assert each.test_metric == curves[each.scheme].last.test_metric
