"""The asker's own features with a question: encoded as in training, in the place of stored rows."""

import pyarrow as pa
import pyarrow.csv
import pytest

from fdml.data.origins import FrameOrigin
from fdml.errors import DataError
from fdml.federation.asked_files import asked_file, own_rows
from fdml.federation.live_features import LiveFeatures, live_file
from fdml.federation.predicting import asking_locally
from fdml.party.settings import read_party
from fdml.serving.asking import AskedRows
from fdml.serving.batch import predict_batch, with_live
from tests.serving.trained import trained

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("live"), kinds={"ann": "mlp"})


@pytest.fixture
def asker(home):
    with asking_locally(home / "federation.toml") as found:
        yield found


def party_of(home):
    return read_party(home / "ann" / "party.toml")


def live(home, asker, table):
    return LiveFeatures(party_of(home), home / "ann", asker.own.facts).column(FrameOrigin(table))


def stored(home):
    return pa.csv.read_csv(home / "ann" / "data.csv")


def texts(ids):
    return pa.array(ids, pa.large_string())


def test_the_stored_features_as_live_ones_give_the_same_bits(home, asker):
    table = stored(home).slice(0, 40)
    ids = texts(table.column("id").to_pylist())
    column = live(home, asker, table.drop_columns(["label"]))
    plain, again = asker.ask(AskedRows(ids)), asker.ask(AskedRows(ids, live=column))
    assert plain.score.tobytes() == again.score.tobytes()


def test_other_features_give_the_score_of_a_row_that_has_them(home, asker):
    """Row 0 with the features of row 1: the label party's part is that of row 1, the others' that of row 0."""
    ids = [f"r{number}" for number in range(2)]
    rows = {row["id"]: row for row in stored(home).to_pylist() if row["id"] in ids}
    swapped = pa.table({"id": ["r0"], "a": [rows["r1"]["a"]], "b": [rows["r1"]["b"]]})
    column = live(home, asker, swapped)
    own = asker.own.column
    places = own.find(asker.own.facts.keys.tokens_of(texts(ids)))
    assert column.codes.tolist() == [own.codes[places[1]].tolist()]
    assert asker.ask(AskedRows(texts(["r0"]), live=column)).score != asker.ask(AskedRows(texts(["r0"]))).score


def test_a_file_of_features_goes_with_a_batch(home, asker, tmp_path):
    (tmp_path / "live.csv").write_text("id,a,b\nr3,2.5,-1\nfresh,0,0\n")
    (tmp_path / "ids.csv").write_text("id\nr3\nr4\nfresh\n")
    facts, party = asker.own.facts, party_of(home)
    table = asked_file(tmp_path / "ids.csv", party, facts.run).table
    with_features = with_live(table, *live_file(tmp_path / "live.csv", party, home / "ann", facts))
    assert with_features.digest != table.digest, "blocks of a batch without them are not used again"
    predict_batch(asker, table, tmp_path / "plain.csv")
    predict_batch(asker, with_features, tmp_path / "live-out.csv")
    before, after = (pa.csv.read_csv(tmp_path / name).to_pylist() for name in ("plain.csv", "live-out.csv"))
    assert before[0]["score"] != after[0]["score"]
    assert before[1]["score"] == after[1]["score"]
    assert before[2]["missing"] == "ann,bob,cid"
    assert after[2]["missing"] == "bob,cid"


def test_a_file_without_the_columns_is_named(home, asker, tmp_path):
    (tmp_path / "live.csv").write_text("id,a\nr3,2.5\n")
    with pytest.raises(DataError, match="'b'"):
        live_file(tmp_path / "live.csv", party_of(home), home / "ann", asker.own.facts)


def test_all_rows_of_the_own_file_can_be_live(home, asker):
    table = stored(home)
    column = live(home, asker, table)
    assert len(column) == len(asker.own.column)
    assert column.codes.tobytes() == asker.own.column.codes.tobytes()
    assert len(own_rows(party_of(home), asker.own.run).rows) == len(column)
