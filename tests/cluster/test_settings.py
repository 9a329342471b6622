"""`[workers]`: what goes together, how many there are, and what must be installed."""

import os

import pytest

from fdml import extras
from fdml.cluster.settings import WorkersSettings
from fdml.errors import MissingExtra, SettingsError


def test_ray_needs_an_address():
    with pytest.raises(SettingsError, match=r'workers\.kind = "ray" needs workers\.address: host:port'):
        WorkersSettings(kind="ray")


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_nobody_else_has_an_address(kind):
    with pytest.raises(SettingsError, match=r"workers\.address is '10\.0\.0\.1:6379', and only"):
        WorkersSettings(kind=kind, address="10.0.0.1:6379")


def test_over_ray_there_are_as_many_workers_as_elsewhere():
    assert WorkersSettings(kind="ray", address="auto").workers(1000) == os.cpu_count()
    assert WorkersSettings(kind="ray", address="auto", count=3).workers(1000) == 3
    assert WorkersSettings(kind="ray", address="auto", count=3).workers(2) == 2
    assert WorkersSettings(kind="processes").workers(1000) == os.cpu_count()


def test_ray_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    WorkersSettings(kind="processes").check()
    with pytest.raises(MissingExtra, match=r'workers\.kind = "ray" needs Ray; install it with `pip install fdml\[cl'):
        WorkersSettings(kind="ray", address="auto").check()
