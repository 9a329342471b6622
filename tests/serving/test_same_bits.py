"""Promise 9: a prediction is the same number in training's evaluation, in process, in a batch and after a restart."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import fdml
from fdml.federation.asked_files import asked_file
from fdml.federation.party_folder import PartyFolder
from fdml.federation.predicting import asking_locally, labelled, own_rows
from fdml.models.bundle import Bundle
from fdml.models.metrics import mean_loss
from fdml.models.registry import kinds
from fdml.party.settings import read_party
from fdml.serving.asking import AskedRows
from fdml.serving.batch import predict_batch
from tests.serving.online.served import over_http
from tests.serving.trained import trained

TORCH = 'kind = "torch"\nmodule = "tests.golden.modules.golden_net:net"'
RUNS = {
    "linear": {"kinds": {}},
    "fm": {"kinds": dict.fromkeys(("ann", "bob", "cid"), "fm")},
    "mlp": {"kinds": dict.fromkeys(("ann", "bob", "cid"), "mlp")},
    "torch": {"kinds": {"bob": TORCH}},
    "vectors of fm": {"kinds": {"bob": "fm"}, "training": 'joint = "fm"\njoint_width = 2'},
    "a head": {"kinds": {"bob": "mlp"}, "training": 'joint = "head"\njoint_width = 2'},
    "trees": {"kinds": {"ann": "trees", "bob": "trees"}},
    "trees+mlp": {"kinds": {"ann": "trees+mlp", "bob": "trees+mlp"}, "training": 'joint = "fm"\njoint_width = 2'},
    "averages": {"kinds": {"bob": 'kind = "mlp"\naverage = 0.99\ndropout = 0.2'}},
    "trees, private labels": {
        "kinds": {"bob": "trees"},
        "run": '[privacy]\nlabels = "private"\nlabel_epsilon = "off"\n',
    },
    "trees, classes": {"kinds": {"bob": "trees"}, "task": "multiclass"},
    "trees, few exchanges": {"kinds": {"bob": "trees"}, "training": "exchanges = 1", "epochs": False},
    "mixed, 16 bits": {"kinds": {"bob": "fm", "cid": "mlp"}, "training": "value_bits = 16"},
    "64 bits": {"kinds": {}, "training": "value_bits = 64"},
    "classes": {"kinds": {"bob": "mlp"}, "task": "multiclass"},
    "regression": {"kinds": {"cid": "fm"}, "task": "regression"},
    "counts": {"kinds": {"cid": "mlp"}, "task": "counts"},
    "counts, a head": {"kinds": {}, "task": "counts", "training": 'joint = "head"\njoint_width = 2'},
    "a quantile": {"kinds": {"bob": "trees"}, "task": "regression", "loss": 'loss = "quantile"\nquantile = 0.9\n'},
    "few exchanges": {"kinds": {}, "training": "exchanges = 1", "epochs": False},
    "two parties, blind": {"parties": ("ann", "bob"), "run": '[privacy]\nserver = "blind"\n'},
    "clipped": {"kinds": {}, "party": {"bob": "[guard]\nclip = 0.2\n"}},
    "absence": {"kinds": {"bob": "mlp"}, "training": "absence = 0.4"},
    "the best epoch": {"kinds": {}, "run": "[evaluation]\nstop_after = 1\n"},
}


def held_out_of(home):
    """The label party's held-out rows in the run's order: ids, labels, weights."""
    folder = PartyFolder(home / "ann" / "party.toml")
    return folder.shared_rows().held_out


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_asked_score_is_the_one_that_training_evaluated(tmp_path, name):
    options = RUNS[name]
    home = trained(tmp_path, **options)
    rows = held_out_of(home)
    with asking_locally(home / "federation.toml") as asker:
        party, run = read_party(home / "ann" / "party.toml"), asker.own.run
        own = own_rows(party, run)
        answers = asker.ask(AskedRows(own.rows.ids.take(pa.array(rows))))
        sample = labelled(own, asker).labels.take(rows)
        found = mean_loss(run.chosen_loss, answers.score, sample)
        assert answers.has_score.all()
        assert found == Bundle.load(home / "ann" / "runs" / "first" / "model").card.metrics.test_loss

        ids = own.rows.ids.take(pa.array(rows)).to_pylist()
        single = [asker.ask(AskedRows(pa.array([each], pa.large_string()))).score[0].tolist() for each in ids[:5]]
        assert single == answers.score[:5].tolist(), "asked alone, a row has the same bits"

        (tmp_path / "ids.csv").write_text("\n".join(["id", *ids]) + "\n")
        if name in KINDS:  # one run of each kind is enough
            with over_http(asker) as client:
                online = client.predict("first", ids).score.reshape(answers.score.shape)
            assert online.tolist() == answers.score.tolist()
        predict_batch(asker, asked_file(tmp_path / "ids.csv", party, run).table, tmp_path / "out.parquet")
    table = fdml.predict(home / "federation.toml", ids)
    columns = [each for each in table.column_names if each.startswith("score")]
    for stored in (table, pa.parquet.read_table(tmp_path / "out.parquet")):
        assert np.column_stack([stored.column(each).to_numpy() for each in columns]).tolist() == answers.score.tolist()
    if name in KINDS:
        assert in_another_process(home, ids[:9]) == answers.score[:9].tolist()


KINDS = tuple(kind.name for kind in kinds())


def test_every_kind_of_the_registry_is_asked():
    assert set(KINDS) <= set(RUNS)


def in_another_process(home, ids):
    """The scores after a restart: a new interpreter reads the folders of all parties from disk."""
    code = (
        "import json, sys, fdml\n"
        "table = fdml.predict(sys.argv[1], json.loads(sys.argv[2]))\n"
        "columns = [name for name in table.column_names if name.startswith('score')]\n"
        "print(json.dumps([[table.column(name)[row].as_py() for name in columns] for row in range(len(table))]))\n"
    )
    words = [sys.executable, "-c", code, str(home / "federation.toml"), json.dumps(ids)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout)


@pytest.mark.slow
def test_no_serving_token_is_anything_that_the_alignment_has_shown(tmp_path):
    """The server keeps the tokens of the alignment; those of prediction are in the parties' own folders alone."""
    home = trained(tmp_path)
    with asking_locally(home / "federation.toml") as asker:
        ids = own_rows(read_party(home / "ann" / "party.toml"), asker.own.run).rows.ids
        tokens = [token.tobytes() for token in asker.own.facts.keys.tokens_of(ids)]
    folders = [path for path in home.rglob("*") if path.is_file() and "serving" not in path.parts]
    content = b"".join(path.read_bytes() for path in folders)
    assert len(content) > 10_000
    assert not [token for token in tokens if token in content]
    keys = asker.own.facts.keys
    assert keys.tokens not in content
    assert keys.tokens.hex().encode() not in content
