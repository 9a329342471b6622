"""A report is one file that needs nothing else, and what stands in it is text."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.events import Reliability
from fdml.monitor.charts import BarChart, LineChart, Series
from fdml.monitor.history import Gain
from fdml.monitor.report import STYLE, Charts, Report, Section, Table, Text, figure, render
from fdml.monitor.report_parts import (
    answer,
    epoch_curve,
    figures_table,
    interval_note,
    known_points,
    reliability_section,
    with_late_fusion,
)

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in ("meta", "line", "polyline", "circle", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} was not open"

    def handle_data(self, text):
        self.texts.append(text)


def report_of(*blocks, title="Run first", answer="Worth it.", tone="good"):
    return Report(title, answer, tone, "about", (Section("What it brought", blocks),), "footer")


CHART = LineChart("Loss", "epoch", (Series("joint", ((1.0, 0.5), (2.0, 0.25))),), (Series("ann alone", ((0, 0.6),)),))
ALL = (
    Text("A sentence."),
    Text("fdml report party.toml", "command"),
    Text("Careful.", "warning"),
    Table(("name", "value"), (("AUC", "0.9000"), ("loss", "-")), "A caption.", 0),
    Charts((CHART, BarChart("Steps", "lag", (("0", 3.0), ("1", 1.0))))),
)


def test_a_page_is_well_formed_and_begins_with_the_answer():
    page = Page(render(report_of(*ALL)))
    assert page.open == []
    texts = [text.strip() for text in page.texts if text.strip()]
    assert texts.index("Worth it.") < texts.index("A sentence.")
    for wanted in ("fdml report party.toml", "Careful.", "A caption.", "0.9000", "footer"):
        assert wanted in texts


def test_a_page_asks_nobody_for_anything_and_runs_nothing():
    text = render(report_of(*ALL))
    page = Page(text)
    assert not {"script", "img", "link", "iframe", "form", "object", "base"} & set(page.tags)
    assert not [each for each in page.attributes if each[1].startswith("on") or each[1] == "style"]
    links = [value for _, name, value in page.attributes if name in ("href", "src")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text


def test_the_policy_allows_the_one_style_and_nothing_else():
    text = render(report_of(*ALL))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_every_style_is_given_for_light_dark_phone_and_paper():
    text = render(report_of())
    for wanted in ("prefers-color-scheme:dark", "max-width:30rem", "@media print", "width=device-width"):
        assert wanted in text
    light, dark = (set(re.findall(r"(--\w+):#", part)) for part in text.split("prefers-color-scheme:dark", 1))
    assert light == dark, "a colour of one scheme has its twin in the other"


@given(st.text(max_size=30).map(lambda text: HOSTILE + text))
def test_whatever_is_written_stays_text(text):
    page = Page(
        render(
            Report(
                text,
                text,
                "bad",
                text,
                (
                    Section(
                        text,
                        (
                            Text(text),
                            Text(text, "command"),
                            Table((text,), ((text,),), text),
                            Charts((LineChart(text, text, (Series(text, ((0.0, 1.0),)), Series(text, ()))),)),
                            Charts((BarChart(text, text, ((text, 1.0),)),)),
                        ),
                    ),
                ),
                text,
            )
        )
    )
    assert not {"script", "img"} & set(page.tags)
    assert page.open == []


def test_every_chart_has_its_numbers_as_a_table():
    text = render(report_of(Charts((CHART, BarChart("Steps", "lag", (("0", 3.0), ("1", 1.0)))))))
    assert text.count("<summary>As a table</summary>") == 2
    for cells in (("1", "0.5000", "0.6000"), ("2", "0.2500", "0.6000"), ("0", "3")):
        assert "".join(f'<td class="n">{cell}</td>' for cell in cells) in text


def test_a_long_series_is_thinned_in_picture_and_table():
    points = tuple((float(at), float(at % 7)) for at in range(50_000))
    text = render(report_of(Charts((LineChart("Loss", "step", (Series("joint", points),)),))))
    assert len(text) < 60_000
    assert text.count("<tr>") <= 202


def test_columns_of_numbers_stand_to_the_right():
    text = render(report_of(Table(("what", "value"), (("AUC", "+0.0324"), ("loss", "-"), ("time", "3.9 s (9 %)")))))
    assert text.count('<td class="n">') == 3
    assert '<th scope="col">what</th>' in text


def test_a_link_leads_to_every_section():
    report = Report("t", "a", "", "b", (Section("Lag, waiting and traffic"), Section("Rows")), "")
    text = render(report)
    for anchor in ("lag-waiting-and-traffic", "rows"):
        assert f'href="#{anchor}"' in text
        assert f'id="{anchor}"' in text


def test_the_answer_says_whether_it_was_worth_it():
    assert answer("ann alone", "auc", Gain(0.032, 0.017, 0.046)) == (
        "Worth it: joint training brought +0.032 AUC over ann alone, between +0.017 and +0.046.",
        "good",
    )
    assert answer("ann alone", "auc", Gain(0.001, -0.01, 0.01))[0].startswith("No certain gain: ")
    assert answer("ann alone", "auc", Gain(-0.1, -0.2, -0.05)) == (
        "Not worth it: joint training was worse, -0.100 AUC over ann alone, between -0.200 and -0.050.",
        "bad",
    )
    assert "too few held-out rows" in answer("ann alone", "auc", Gain(0.1, None, None))[0]
    assert answer("ann alone", "auc", Gain(None, None, None))[1] == "fair"


def test_figures_are_better_by_their_own_direction():
    table = figures_table(
        {"joint": {"auc": 0.9, "brier": 0.1, "threshold": 0.5}, "alone": {"auc": 0.8, "brier": 0.2}}, ("joint", "alone")
    )
    assert table.rows == (("AUC", "0.9000", "0.8000", "+0.1000"), ("Brier score", "0.1000", "0.2000", "+0.1000"))
    assert table.headings[-1] == "better by"
    (row,) = figures_table({"joint": {"auc": None}, "alone": {}}, ("joint", "alone")).rows
    assert row == ("AUC", "-", "-", "-")
    assert figures_table({"joint": {"r2": 0.5}}, None).rows == (("R2", "0.5000"),)


def test_levels_that_are_not_known_are_left_out():
    chart = epoch_curve("Loss", [Series("joint", ((1.0, 2.0),)), Series("none", ())], {"alone": None, "pooled": 0.5})
    assert [each.name for each in chart.series] == ["joint"]
    assert [(each.name, each.style) for each in chart.levels] == [("pooled", "pooled")]
    assert known_points([(1, None), (2, 0.5)]) == ((2, 0.5),)


def test_calibration_and_lift_in_words_charts_and_a_table():
    found = Reliability("ann", 3, (5.0, 3.0), (0.25, None), (0.2, None), (2.5, 1.0))
    section = reliability_section(found, "binary", {"brier": 0.1, "calibration_error": 0.02})
    text = render(Report("t", "a", "", "b", (section,), ""))
    assert "2.50 times as many are positive" in text
    assert "Calibration error 0.0200, Brier score 0.1000." in text
    assert "<td>0.0 to 0.1</td>" in text
    assert figure(None) == "-"


def test_where_there_is_no_calibration_the_page_says_why():
    for task, words in (("regression", "this one is regression"), ("binary", "with probabilities")):
        (text,) = reliability_section(None, task, {}).blocks
        assert words in text.text


def test_the_interval_is_explained():
    assert "95 % of 500 resamples of the 800 held-out rows" in interval_note(800, 500).text
    assert "95 % of resamples of the held-out rows" in interval_note().text


# What the style promises, in figures.


def colours(scheme):
    """The named colours of one scheme."""
    light, dark = STYLE.split("prefers-color-scheme:dark", 1)
    return dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", light if scheme == "light" else dark))


def brightness(colour):
    """The relative luminance of WCAG 2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((brightness(one), brightness(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("behind", ["back", "card"])
@pytest.mark.parametrize("name", ["ink", "soft", "link"])
def test_every_text_can_be_read(scheme, behind, name):
    found = colours(scheme)
    assert contrast(found[name], found[behind]) >= 4.5, "what WCAG 2 asks of text"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["joint", "pooled", "alone", "fusion", "good", "fair", "bad"])
def test_every_line_can_be_told_from_what_is_behind_it(scheme, name):
    found = colours(scheme)
    assert min(contrast(found[name], found[behind]) for behind in ("back", "card")) >= 3.0, "what WCAG 2 asks of lines"


def test_lines_differ_by_more_than_their_colour():
    dashes = re.findall(r"\.(\w+)\{[^}]*stroke-dasharray:([\d ]+)", STYLE)
    assert sorted(name for name, _ in dashes) == ["alone", "fusion"]
    assert len({pattern for _, pattern in dashes}) == 2


def test_a_wide_table_scrolls_by_itself_and_not_the_page():
    assert '<div class="scroll" tabindex="0"><table>' in render(report_of(Table(("a",), (("b",),))))
    assert ".scroll{overflow-x:auto" in STYLE


def test_the_state_of_focus_can_be_seen():
    assert ":focus-visible{outline:2px" in STYLE


def test_features_that_bring_as_much_without_joint_training_are_no_gain_of_it():
    text, tone = answer("ann alone", "auc", Gain(0.032, 0.017, 0.046))
    assert with_late_fusion(text, tone, None) == (text, "good")
    assert with_late_fusion(text, tone, 0.007)[0].endswith("Over late fusion, which takes no joint training: +0.007.")
    found, tone = with_late_fusion(text, tone, -0.002)
    assert found.startswith("No gain over late fusion, which takes no joint training: -0.002. Joint training brought +")
    assert "over ann alone" in found
    assert tone == "fair"
    worse, tone = answer("ann alone", "auc", Gain(-0.1, -0.2, -0.05))
    assert with_late_fusion(worse, tone, -0.2)[0].startswith("Not worth it"), "it stays the first word"


@pytest.mark.parametrize("tone", ["good", "fair", "bad"])
def test_the_tone_of_the_answer_is_a_mark_beside_words_that_say_the_same(tone):
    text = render(report_of(tone=tone, answer="No certain gain."))
    assert f'<p class="answer {tone}">No certain gain.</p>' in text
    assert f".answer.{tone}{{border-color:var(--{tone})" in STYLE


def test_anchors_are_plain_words():
    assert Section("Privacy: what this run showed of ann & co").anchor == "privacy-what-this-run-showed-of-ann-co"


def test_a_table_without_rows_has_its_headings():
    text = render(report_of(Table(("what", "value"), ())))
    assert '<th scope="col">what</th><th scope="col">value</th>' in text


def test_series_with_different_places_leave_cells_empty():
    chart = LineChart("Loss", "epoch", (Series("a", ((1.0, 0.5),)), Series("b", ((2.0, 0.25),))))
    text = render(report_of(Charts((chart,))))
    assert '<td class="n">1</td><td class="n">0.5000</td><td class="n">-</td>' in text
    assert '<td class="n">2</td><td class="n">-</td><td class="n">0.2500</td>' in text
