"""A page becomes a PDF where there is a browser."""

import shutil

import pytest

from fdml.errors import SettingsError
from fdml.monitor import pdf
from fdml.monitor.report import Report, render


@pytest.mark.slow
@pytest.mark.skipif(
    not any(map(shutil.which, pdf.BROWSERS)), reason="no Chromium or Chrome here; scripts/chromium.sh installs one"
)
def test_a_page_is_printed_for_its_owner_alone(tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(render(Report("Run first", "Worth it.", "good", "about", ())))
    pdf.write_pdf(page, out)
    assert out.read_bytes().startswith(b"%PDF-")
    assert out.stat().st_mode & 0o777 == 0o600


def test_without_a_browser_the_way_out_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="needs a browser, and none of chromium"):
        pdf.find_browser()


def test_a_browser_that_fails_is_named(monkeypatch, tmp_path):
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\nexit 3\n")
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(SettingsError, match=r"could not print .*exit status 3"):
        pdf.write_pdf(tmp_path / "page.html", tmp_path / "page.pdf")


def test_a_browser_that_prints_nothing_is_named(monkeypatch, tmp_path):
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\nexit 0\n")
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(SettingsError, match="left no PDF"):
        pdf.write_pdf(tmp_path / "page.html", tmp_path / "page.pdf")
