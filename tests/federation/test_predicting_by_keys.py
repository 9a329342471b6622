"""Prediction where rows of the label party lead to coarser rows of another, or are kept though another lacks them."""

import numpy as np
import pyarrow as pa
import pytest

import fdml
from fdml.errors import SettingsError
from fdml.federation.asked_files import asked_file
from fdml.federation.party_folder import PartyFolder
from fdml.federation.predicting import asking_locally, labelled, own_rows
from fdml.models.bundle import Bundle
from fdml.models.metrics import mean_loss
from fdml.party.settings import read_party
from fdml.serving.asking import AskedRows
from tests.serving.trained import train

pytestmark = pytest.mark.slow
SALES, SHOPS = 200, 12


def write_shops(home):
    """Sales of ann, each in a shop; bob has a row for every shop, and ann's key leads to it."""
    home.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(2)
    size, shop, x = random.normal(size=SHOPS), random.integers(0, SHOPS, SALES), random.normal(size=SALES)
    label = np.where(x + 2 * size[shop] > 0, "yes", "no")
    (home / "federation.toml").write_text('name = "small"\nserver = "127.0.0.1:0"\nparties = ["ann", "bob"]\n')
    (home / "run.toml").write_text(
        'name = "first"\nlabel_party = "ann"\n[keys]\nbob = ["shop"]\n'
        "[training]\nepochs = 2\nbatch_size = 16\nbatches_per_block = 4\nvalue_bits = 64\n"
    )
    rows = [f"s{at},{x[at]},k{shop[at]},{label[at]}" for at in range(SALES)]
    tables = {
        "ann": ("id,x,shop,label", rows, 'id = "id"\nlabel = "label"\nignore = ["shop"]\n'),
        "bob": ("shop,size", [f"k{at},{size[at]}" for at in range(SHOPS)], 'id = "shop"\n'),
    }
    for name, (header, lines, data) in tables.items():
        (home / name).mkdir(exist_ok=True)
        (home / name / "data.csv").write_text("\n".join([header, *lines]) + "\n")
        (home / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\nthreads = 1\n[align]\nmax_rows = 1000\n'
            f'[data]\npath = "data.csv"\n{data}'
        )
    return home / "run.toml"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    run = write_shops(tmp_path_factory.mktemp("shops"))
    train(run, ("ann", "bob"))
    return run.parent


def test_the_key_of_a_row_is_looked_up_and_the_score_is_the_one_of_training(home):
    shared = PartyFolder(home / "ann" / "party.toml").shared_rows()
    with asking_locally(home / "federation.toml") as asker:
        own = own_rows(read_party(home / "ann" / "party.toml"), asker.own.run)
        rows = pa.array(shared.held_out)
        leads = {other: keys.take(rows) for other, keys in own.rows.leads.items()}
        answers = asker.ask(AskedRows(own.rows.ids.take(rows), leads))
        sample = labelled(own, asker).labels.take(shared.held_out)
        assert answers.has_score.all()
        card = Bundle.check(home / "ann" / "runs" / "first" / "model")
        assert mean_loss("logistic", answers.score, sample) == card.metrics.test_loss


def test_ids_alone_are_enough_for_rows_of_the_label_partys_files(home):
    table = fdml.predict(home / "federation.toml", ["s1", "s2", "stranger"])
    assert table.column("score").null_count == 1
    assert table.column("missing").to_pylist() == ["", "", "ann,bob"]


def test_a_file_may_bring_the_keys_itself(home, tmp_path):
    lines = (home / "ann" / "data.csv").read_text().splitlines()[1:4]
    pairs = [(line.split(",")[0], line.split(",")[2]) for line in lines]
    (tmp_path / "ids.csv").write_text("id,shop\n" + "".join(f"{row},{shop}\n" for row, shop in pairs))
    run = PartyFolder(home / "ann" / "party.toml").run
    ((_, rows),) = asked_file(tmp_path / "ids.csv", read_party(home / "ann" / "party.toml"), run).table.blocks(10)
    assert rows.leads["bob"].to_pylist() == [shop for _, shop in pairs]
    with asking_locally(home / "federation.toml") as asker:
        brought = asker.ask(rows).score.tolist()
    looked_up = fdml.predict(home / "federation.toml", [row for row, _ in pairs]).column("score").to_pylist()
    assert [each[0] for each in brought] == looked_up


def test_only_the_party_whose_rows_lead_on_can_ask(home, tmp_path):
    run = PartyFolder(home / "bob" / "party.toml").run
    (tmp_path / "ids.csv").write_text("shop\nk1\n")
    with pytest.raises(SettingsError, match="lead from rows of 'ann'"):
        asked_file(tmp_path / "ids.csv", read_party(home / "bob" / "party.toml").model_copy(), run)
