from fdml.federation.findings import Brought, OtherSchemes
from fdml.federation.report_findings import brought_section, scheme_blocks
from fdml.monitor.history import Gain
from fdml.monitor.report import Report, Section, render

BROUGHT = Brought(
    "0123456789abcdef",
    "auc",
    240,
    {"ann": Gain(0.3, 0.28, 0.32), "bob": Gain(-0.01, -0.02, 0.01), "cid": Gain(0.1, None, None)},
    {"ann": Gain(0.25, 0.2, 0.3), "bob": Gain(0.0, -0.01, 0.01), "cid": Gain(None, None, None)},
)


def text(*sections):
    return render(Report("t", "a", "", "b", sections, ""))


def test_every_party_has_its_share_with_the_interval():
    page = text(brought_section(BROUGHT, "ann", "ann"))
    for words in (
        "+0.3000 (+0.2800 to +0.3200)",
        "-0.0100 (-0.0200 to +0.0100)",
        "+0.1000",
        "240 labelled rows",
        "AUC",
    ):
        assert words in page
    assert "0123456789ab" in page


def test_where_it_was_not_computed_it_says_how():
    assert "fdml explain party.toml" in text(brought_section(None, "ann", "ann"))


def test_a_party_without_labels_is_sent_to_who_has_them():
    page = text(brought_section(BROUGHT, "bob", "ann"))
    assert "see the report of ann" in page
    assert "0.3000" not in page


def test_other_schemes_are_told_apart_from_the_run_itself():
    found = OtherSchemes("auc", 800, 2, {"alone": (0.4, 0.8), "late fusion": (0.35, 0.85), "pooled": (0.3, 0.9)})
    page = text(Section("x", tuple(scheme_blocks(found, same_rows=False))))
    for words in (
        "late fusion",
        "0.8500",
        "pooled",
        "0.9000",
        "800 held-out rows, mean of 2 seeds",
        "not with those above",
    ):
        assert words in page


def test_schemes_on_the_same_rows_may_be_compared_with_the_run():
    found = OtherSchemes("auc", 24, 1, {"late fusion": (0.35, 0.85)}, "ab12")
    page = text(Section("x", tuple(scheme_blocks(found, same_rows=True))))
    assert "Of the same 24 held-out rows as the figures above, mean of 1 seed;" in page
    assert "not with those above" not in page


def test_without_a_comparison_there_is_nothing():
    assert list(scheme_blocks(None, same_rows=False)) == []
