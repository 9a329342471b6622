"""The commands as a user runs them: in a process of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fdml.cli.app import main

pytestmark = pytest.mark.slow
FDML = Path(sys.executable).with_name("fdml")


def fdml(*words, cwd):
    return subprocess.run([FDML, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def forked(*words, cwd):
    """As `fdml`, in a process that has everything imported already; there are many ways to be wrong."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fdml.cli.compare"])
    process = context.Process(target=_command, args=(list(map(str, words)), cwd))
    process.start()
    process.join(300)
    assert process.exitcode is not None
    out, err = ((cwd / name).read_text() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(words, process.exitcode, out, err)


def _command(words, cwd):
    os.chdir(cwd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    sys.argv = ["fdml", *words]
    main()


@pytest.fixture
def people(tmp_path):
    """A CSV file with a label that both halves of its columns are needed for."""
    random = np.random.default_rng(0)
    age, hours = random.integers(18, 80, 900), random.normal(40, 9, 900)
    city = random.choice(["Oslo", "Rome", "Bern"], 900)
    rich = (age > 45).astype(int) + (city == "Bern") + (hours > 42) >= 2
    lines = [f"{at},{age[at]},{hours[at]:.2f},{city[at]},{'yes' if rich[at] else 'no'}" for at in range(900)]
    (tmp_path / "people.csv").write_text("id,age,hours,city,rich\n" + "\n".join(lines) + "\n")
    return tmp_path


def test_compare_prints_a_table_and_writes_figures_and_plots(people):
    run = fdml(
        "compare", "people.csv", "--label", "rich", "--ignore", "id", "--groups", "age; hours,city",
        "--models", "linear,fm", "--epochs", "5", "--json", "out.json", "--plot", "out.png", cwd=people,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for word in ("alone", "late fusion", "pooled", "joint", "LR", "FM", "test AUC"):
        assert word in run.stdout
    written = json.loads((people / "out.json").read_text())
    assert [(row["model"], row["scheme"]) for row in written["rows"]] == [
        (model, scheme) for model in ("LR", "FM") for scheme in ("alone", "late fusion", "pooled", "joint")
    ]
    figures = {"train_objective", "test_loss", "test_auc", "seconds"}
    assert set(written["rows"][0]) == {"model", "scheme", "convergence", *figures}
    assert len(written["history"]) == 2 * 4 * 5
    joint, alone = written["rows"][3], written["rows"][0]
    assert joint["test_auc"] > alone["test_auc"] + 0.05
    assert (people / "out.png").read_bytes().startswith(b"\x89PNG")
    assert "training: " in run.stderr, "progress goes to standard error, as plain lines"


@pytest.fixture
def run_folder(people):
    rows = (people / "people.csv").read_text().splitlines()[1:]
    cells = [row.split(",") for row in rows]
    for name, head, keep in (("shop", "user,age,rich", (0, 1, 4)), ("bank", "client,hours,city", (0, 2, 3))):
        (people / name).mkdir()
        ordered = cells if name == "shop" else cells[100:][::-1]
        text = "\n".join([head, *(",".join(row[at] for at in keep) for row in ordered)])
        (people / name / "data.csv").write_text(text + "\n")
    (people / "federation.toml").write_text('parties = ["shop", "bank"]\n')
    (people / "run.toml").write_text('label_party = "shop"\n[training]\nepochs = 4\nlearning_rate = "auto"\n')
    (people / "shop" / "party.toml").write_text(
        'party = "shop"\nfederation = "../federation.toml"\n[data]\npath = "data.csv"\nid = "user"\nlabel = "rich"\n'
    )
    (people / "bank" / "party.toml").write_text(
        'party = "bank"\nfederation = "../federation.toml"\n[data]\npath = "data.csv"\nid = "client"\n[model]\nkind = "mlp"\n'
    )
    return people


def test_compare_takes_a_run_file_and_joins_the_parties_by_id(run_folder):
    run = fdml("compare", "run.toml", "--json", "out.json", cwd=run_folder)
    assert run.returncode == 0, run.stderr
    assert "640 training and 160 test rows" in run.stdout
    rows = json.loads((run_folder / "out.json").read_text())["rows"]
    assert {row["model"] for row in rows} == {"LR+NN"}
    for row in rows:
        said = f"{row['model']} {row['scheme']}: " in run.stdout
        assert said == (row["convergence"] in ("falling", "diverged"))


def test_compare_weighs_classes_by_name_and_leaves_early_stopping_out(run_folder):
    with (run_folder / "run.toml").open("a") as file:
        file.write("[training.class_weight]\nyes = 3.0\n[evaluation]\nstop_after = 1\n")
    run = forked("compare", "run.toml", "--json", "out.json", cwd=run_folder)
    assert run.returncode == 0, run.stderr
    assert "evaluation.stop_after is left out: every scheme trains to its last epoch" in run.stderr
    assert len(json.loads((run_folder / "out.json").read_text())["history"]) == 4 * 4


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


BAD_RUNS = {
    "wrong column": ("shop/party.toml", '"rich"', '"ritch"', "no label column 'ritch'; did you mean 'rich'?"),
    "unknown setting": ("run.toml", "epochs", "epoch", "unknown setting 'epoch'; did you mean 'epochs'?"),
    "value out of range": ("run.toml", "= 4", "= 0", "setting 'epochs' is 0: input should be greater than 0"),
    "unknown task": ("run.toml", "label_party", 'task = "rank"\nlabel_party', "setting 'task' is 'rank'"),
    "labels of the wrong kind": (
        "run.toml", "label_party", 'task = "regression"\nlabel_party', '"regression" needs numbers as labels',
    ),
    "one class": ("shop/data.csv", ",no", ",yes", "all 640 labels are the same: one class only"),
    "no labels": ("shop/party.toml", 'label = "rich"', "", "label party 'shop' has no labels; set data.label"),
    "an empty party": (
        "bank/party.toml", '[model]', 'ignore = ["hours", "city"]\n[model]', "neither features nor labels",
    ),
    "a party that is not there": ("federation.toml", '"bank"]', '"bankk"]', "party 'bankk' of run.toml has no file"),
    "not TOML": ("federation.toml", "parties", "parties parties", "not valid TOML"),
    "ids that repeat": ("bank/party.toml", 'id = "client"', 'id = "city"', "rows with a duplicate id"),
    "a file that is not there": ("bank/party.toml", '"data.csv"', '"dada.csv"', "there is no file"),
    "diverging": ("run.toml", '"auto"', "9e3", "learning_rate 9000 times l2 0.0015625 must be below 1; lower one of them"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD_RUNS)
def test_bad_input_is_one_clear_line_and_exit_code_1(run_folder, fault):
    file, old, new, message = BAD_RUNS[fault]
    change(run_folder / file, old, new)
    run = forked("compare", "run.toml", cwd=run_folder)
    said = [line for line in run.stderr.splitlines() if not line.startswith("training:")]
    assert run.returncode == 1
    assert len(said) == 1, run.stderr
    assert message in said[0]
    assert "Traceback" not in run.stderr


def test_nan_in_features_names_column_and_row_and_the_way_out(people):
    lines = (people / "people.csv").read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[2], "nan")
    (people / "people.csv").write_text("\n".join(lines) + "\n")
    run = forked("compare", "people.csv", "--label", "rich", "--missing", "error", cwd=people)
    assert run.returncode == 1
    assert "'hours'" in run.stderr
    assert "row 3" in run.stderr
    assert 'set data.missing = "indicator", "mean" or "zero"' in run.stderr
    assert (
        forked("compare", "people.csv", "--label", "rich", "--missing", "mean", "--epochs", 1, cwd=people).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "forest"], "--models has 'forest'; it takes linear, fm, mlp"),
        (["--task", "rank"], "--task is 'rank'; it takes binary, multiclass, regression"),
        (
            ["--loss", "rank"],
            "there is no loss 'rank'; there are logistic, hinge, pairwise, softmax, squared, poisson, quantile",
        ),
        (["--loss", "poisson", "--task", "binary"], "loss 'poisson' does not fit task 'binary'"),
        (["--groups", "age; cty"], "'cty'; did you mean 'city'?"),
        (["--groups", "age;"], "group 2 has no features"),
        (["--json", "no/such/out.json"], "there is no folder 'no/such'"),
        (["--epochs", "0"], "setting 'epochs' is '0'"),
        (["--learning-rate", "fast"], "setting 'learning_rate' is 'fast'"),
        (["--holdout", "2"], "holding out 2 of 900 rows"),
    ],
)
def test_wrong_options_are_named(people, words, message):
    run = forked("compare", "people.csv", "--label", "rich", *words, cwd=people)
    assert run.returncode == 1
    assert message in run.stderr


@pytest.mark.parametrize("loss", ["poisson", "quantile(0.9)"])
def test_counts_and_quantiles_are_compared_by_d2(people, loss):
    words = ["--label", "age", "--ignore", "rich", "--loss", loss, "--models", "linear", "--epochs", 2]
    run = forked("compare", "people.csv", *words, "--json", "out.json", cwd=people)
    assert run.returncode == 0, run.stderr
    assert "test D2" in run.stdout
    assert "D2 over alone" in run.stdout
    assert "test_d2" in json.loads((people / "out.json").read_text())["rows"][0]


def test_wrong_usage_exits_with_2(tmp_path):
    assert fdml("compare", cwd=tmp_path).returncode == 2
    assert forked("no-such-command", cwd=tmp_path).returncode == 2
    assert forked("compare", "x.csv", "--no-such-option", cwd=tmp_path).returncode == 2


def test_demo_writes_the_table_its_json_and_the_plots(tmp_path):
    run = fdml("demo", "--seeds", 1, "--json", "demo.json", "--plot", "demo.png", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert ".9026" in run.stdout, "the paper's own figures stand beside ours"
    rows = json.loads((tmp_path / "demo.json").read_text())["rows"]
    assert len(rows) == 8
    assert (tmp_path / "demo.png").stat().st_size > 50_000
