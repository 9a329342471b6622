import sqlite3

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.data import queries
from fdml.data.origins import origins_of
from fdml.data.queries import run_query
from fdml.data.rows import to_dense, vstack
from fdml.data.sources import open_sources
from fdml.errors import DataError, MissingExtra, SettingsError
from fdml.settings.data import DataSettings
from tests.data.postgres import connected, postgres_server, write_table

SECRET = "hidden-one"


def read(table, columns=None):
    return pa.Table.from_batches(list(table.batches(columns or table.names))).to_pydict()


def settings(query="select * from 'x.parquet'", **named):
    return DataSettings(**{"query": query, "id": "id", **named})


@pytest.fixture
def folder(tmp_path):
    pq.write_table(pa.table({"id": ["b", "c", "a"], "n": [2, 3, 1]}), tmp_path / "x.parquet")
    (tmp_path / "y.csv").write_text("id,city\na,Lima\nb,Paris\nc,Rome\n")
    return tmp_path


def test_rows_are_sorted_by_id_whatever_the_query_says(folder):
    query = "select x.id, n, city from 'x.parquet' x join 'y.csv' y using (id) order by n desc -- all of them"
    assert read(run_query(query, settings(folder=folder))) == {
        "id": ["a", "b", "c"],
        "n": [1, 2, 3],
        "city": ["Lima", "Paris", "Rome"],
    }


def test_several_ids_are_sorted_one_after_the_other(folder):
    named = settings(id=["n", "id"], folder=folder)
    assert read(run_query("select id, n % 2 as n from 'x.parquet'", named)) == {"id": ["b", "a", "c"], "n": [0, 1, 1]}


def test_a_query_needs_an_id_and_no_first_of_duplicates(folder):
    with pytest.raises(SettingsError, match=r"have no order of their own; set data.id, they are sorted by it"):
        run_query("select 1", DataSettings(query="select 1"))
    with pytest.raises(SettingsError, match=r'choose one in the query, or set data.ids.duplicates = "drop"'):
        run_query("select 1", settings(ids={"duplicates": "first"}))


def test_a_database_file_of_duckdb_is_attached_and_stays_as_it_is(tmp_path):
    with duckdb.connect(str(tmp_path / "bank.duckdb")) as database:
        database.execute("create table people as select 'u' || range as id, range as n from range(5)")
    named = settings("select * from people where n > 2", attach=tmp_path / "bank.duckdb")
    assert read(run_query(named.query, named)) == {"id": ["u3", "u4"], "n": [3, 4]}
    with pytest.raises(DataError, match="DuckDB refuses it"):
        run_query("delete from people", named)


def test_a_query_runs_once_and_is_read_often(folder, monkeypatch):
    ran = []
    run = queries.run_query
    monkeypatch.setattr("fdml.data.origins.run_query", lambda *given: ran.append(1) or run(*given))
    (origin,) = origins_of(settings(folder=folder))
    (source,) = open_sources(settings(folder=folder), origins=[origin])
    first = to_dense(vstack(list(source.chunks())))
    (folder / "x.parquet").unlink()
    assert to_dense(vstack(list(source.chunks()))).tobytes() == first.tobytes()
    assert origin.digest() == origin.digest()
    assert ran == [1]


def test_a_query_for_test_rows_is_encoded_as_the_other(folder):
    named = settings(test_query="select * from 'x.parquet' where n = 3", folder=folder, scale="none")
    train, test = open_sources(named)
    assert to_dense(vstack(list(train.chunks()))).tolist() == [[1], [2], [3]]
    assert to_dense(vstack(list(test.chunks()))).tolist() == [[3]]


def test_no_extension_is_downloaded(tmp_path):
    sqlite3.connect(tmp_path / "x.db").execute("create table rows (id text)").connection.close()
    with pytest.raises(DataError, match=r"fdml downloads no extension: set data.driver"):
        run_query("select * from rows", settings(attach=tmp_path / "x.db"))


REFUSED = {
    "no such table": ("select * from nowhere", "Catalog Error: Table with name nowhere does not exist"),
    "no such file": ("select * from 'nowhere.parquet'", "No files found"),
    "no such column": ("select x from (select 1 as id)", "Binder Error"),
    "no select": ("drop table x", "Parser Error"),
    "no id column": ("select 1 as n", 'column "id"'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_duckdb_refuses_is_told_in_a_line(folder, case):
    query, message = REFUSED[case]
    with pytest.raises(DataError, match=message) as raised:
        run_query(query, settings(folder=folder))
    assert "\n" not in str(raised.value)


def test_values_of_the_rows_are_not_shown(folder):
    with pytest.raises(DataError, match="of a value that is not shown") as raised:
        run_query(f"select 1 as id, cast(city || '{SECRET}' as integer) as n from 'y.csv'", settings(folder=folder))
    assert SECRET not in str(raised.value)


# ADBC.


def test_sqlite_is_read_through_its_driver(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("create table people (id integer, n real, w text)")
        rows = [(number, None if number == 0 else number / 2, f"w{number % 3}") for number in range(3000)]
        database.executemany("insert into people values (?, ?, ?)", rows[::-1])
    database.close()
    named = settings("select * from people", driver="adbc_driver_sqlite", attach=tmp_path / "x.db")
    found = read(run_query(named.query, named))
    assert list(zip(*found.values(), strict=True)) == rows


def test_a_database_is_not_written(tmp_path):
    sqlite3.connect(tmp_path / "x.db").execute("create table people (id integer)").connection.close()
    named = settings(
        "insert into people values (1) returning id", driver="adbc_driver_sqlite", attach=tmp_path / "x.db"
    )
    with pytest.raises(DataError, match="adbc_driver_sqlite refuses it"):
        run_query(named.query, named)


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("BANK_DATABASE", raising=False)
    named = settings(driver="adbc_driver_postgresql", connection="BANK_DATABASE")
    with pytest.raises(SettingsError, match="names the environment variable 'BANK_DATABASE'; set it"):
        run_query("select 1", named)


@pytest.mark.parametrize(
    "address", [f"postgresql://me:{SECRET}@127.0.0.1:1/bank?connect_timeout=2", f"nonsense {SECRET}"]
)
def test_an_address_is_not_shown(monkeypatch, address):
    monkeypatch.setenv("BANK_DATABASE", address)
    named = settings(driver="adbc_driver_postgresql", connection="BANK_DATABASE")
    with pytest.raises(DataError, match="adbc_driver_postgresql refuses it") as raised:
        run_query("select 1 as id", named)
    assert SECRET not in str(raised.value)


def test_a_driver_that_is_not_installed_names_its_package(monkeypatch):
    monkeypatch.setenv("DB", "x")
    named = settings(driver="adbc_driver_flightsql", connection="DB")
    with pytest.raises(MissingExtra, match="install it with `pip install adbc-driver-flightsql`"):
        run_query("select 1", named)


@pytest.mark.slow
def test_postgresql_is_read_through_its_driver(monkeypatch):
    with postgres_server() as address:
        write_table(address, "people", pa.table({"id": ["b", "a", "c"], "n": [2, None, 3]}))
        with connected(address) as connection, connection.cursor() as cursor:
            cursor.execute("create table money (id text, sum numeric(20, 2), at timestamptz)")
            cursor.execute("insert into money values ('a', 12.50, '2026-11-15T10:00:00Z'), ('b', null, null)")
            connection.commit()
        monkeypatch.setenv("BANK_DATABASE", address)
        named = settings(driver="adbc_driver_postgresql", connection="BANK_DATABASE")
        assert read(run_query("select * from people", named)) == {"id": ["a", "b", "c"], "n": [None, 2, 3]}
        table = run_query("select id, sum, at from money;", named)
        assert read(table, ("id", "sum")) == {"id": ["a", "b"], "sum": [12.5, None]}
        assert str(next(iter(table.batches(("at",)))).schema.field("at").type) == "timestamp[us, tz=UTC]"
        with pytest.raises(DataError, match="does not exist"):
            run_query("select * from nowhere", named)
        with pytest.raises(DataError, match="not shown") as raised:
            run_query("select id, cast(id || 'hidden-one' as integer) as n from people", named)
        assert SECRET not in str(raised.value)
