from fdml.data.ids import IdCounts
from fdml.party.alignment import AlignmentReport

GOOD = IdCounts(rows=20, missing=0, repeated=0, dropped=0, missing_at=(), repeated_at=())


def report_of(*ids, warning=""):
    return AlignmentReport("tokens", {"ann": 9, "bob": 8}, 7, 5, 2, 0.1, 10, 20, ids, warning)


def test_no_row_is_left_out_in_silence():
    found = IdCounts(rows=20, missing=2, repeated=7, dropped=9, missing_at=(4, 9), repeated_at=(5, 6, 7, 8, 10))
    assert report_of(found, warning="hardly any row is shared").remarks() == [
        "data.path: 2 rows without an id (data rows 4, 9)",
        "data.path: 7 rows with a duplicate id (data rows 5, 6, 7, 8, 10, ...)",
        "data.path: 9 rows were left out for that",
        "warning: hardly any row is shared",
    ]


def test_good_ids_are_not_remarked():
    assert report_of(GOOD, GOOD).remarks() == []
    assert report_of().remarks() == []


def test_remarks_say_which_file_they_are_about():
    assert report_of(GOOD, IdCounts(20, 1, 0, 1, (3,), ())).remarks()[0].startswith("data.test_path: 1 rows without")


def test_rows_that_the_run_does_not_use_are_counted_by_reason():
    ids = IdCounts(120, 3, 2, 5, (1, 2, 3), (4, 5))
    report = AlignmentReport("tokens", {"ann": 115, "bob": 100}, 90, 72, 18, 0.5, ids=(ids,))
    assert report.lost("ann") == {"have no id": 3, "have a duplicate id": 2, "are not held by all others": 25}
    assert report.lost("bob")["are not held by all others"] == 10


def test_where_all_rows_are_used_none_are_lost():
    assert AlignmentReport("tokens", {"ann": 90, "bob": 90}, 90, 72, 18, 0.5).lost("ann") == {}


def test_rows_of_a_coarser_table_are_not_lost_by_not_being_pointed_to():
    assert AlignmentReport("tokens", {"ann": 90, "bob": 900}, 90, 72, 18, 0.5, absent=3).lost("bob") == {}
