"""The models of an endpoint: one that cannot be served keeps no other back, and the asker's files may change."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fdml.errors import RequestRefused, SettingsError
from fdml.federation import endpoint_models
from fdml.federation.endpoint_models import EndpointModels
from fdml.federation.run_folder import RunFolder
from tests.serving.online.served import rows_of
from tests.serving.published import IDS, PARTIES, asker_of, publication_of, run_of, values_of

PARTY = """party = "ann"
federation = "federation.toml"
[data]
path = "data.csv"
id = "user"
label = "y"
"""


class Endpoint:
    """The models of ann's folder, without a server; `refused` has runs that cannot be asked."""

    def __init__(self, folder, monkeypatch, threads):
        self.folder, self.refused, self.told, self.unfinished = folder, {}, [], set()
        (folder / "party.toml").write_text(PARTY)
        self.write("u1,s1,0")
        home = SimpleNamespace(
            folder=folder, file=folder / "party.toml", federation=SimpleNamespace(name="small"), settings=None
        )
        monkeypatch.setattr(endpoint_models, "published_asker", self._asker)
        monkeypatch.setattr(EndpointModels, "_counts", lambda _, run: run not in self.unfinished)
        self.models = EndpointModels(
            home,
            None,
            threads,
            seconds=None,
            report=lambda about, text: self.told.append((about, text)),
            unforeseen=self.told.append,
        )

    def write(self, *rows):
        (self.folder / "data.csv").write_text("user,shop,y\n" + "\n".join(rows) + "\n")

    def publish(self, name, version, **settings):
        run = run_of(**settings).model_copy(update={"name": name})
        found = {each: publication_of(each, IDS, values_of()[each], run=run, version=version * 32) for each in PARTIES}
        if not (self.folder / "runs" / name).exists():
            RunFolder(self.folder, run).begin()
        own = found["ann"]
        replace(own, facts=replace(own.facts, run=run)).save(self.folder / "runs" / name / "serving")
        self._found = {**getattr(self, "_found", {}), name: found}

    def _asker(self, _home, run, _line, _seconds):
        if run in self.refused:
            raise SettingsError(self.refused[run])
        return asker_of(self._found[run], "ann")

    def look(self):
        self.models.look()
        return self.models


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    with ThreadPoolExecutor(2) as threads:
        yield Endpoint(tmp_path, monkeypatch, threads)


def test_a_run_that_cannot_be_asked_keeps_no_other_back(endpoint):
    for name, version in (("alpha", "a"), ("beta", "b"), ("gamma", "c")):
        endpoint.publish(name, version)
    endpoint.refused["alpha"] = "party 'ann' may not ask for predictions of run 'alpha'"
    models = endpoint.look()
    assert models.find("beta", None).version == "b" * 32
    assert models.find("gamma", None).version == "c" * 32
    with pytest.raises(RequestRefused, match="no model 'alpha'; there are: beta, gamma, small"):
        models.find("alpha", None)
    assert any("'alpha' stays as it was: party 'ann' may not ask" in text for _, text in endpoint.told)


def test_a_model_that_cannot_be_asked_is_not_replaced_by_another_where_it_is_the_chosen_one(endpoint):
    endpoint.publish("alpha", "a")
    endpoint.publish("beta", "b")
    endpoint.unfinished.add("beta")
    models = endpoint.look()
    with pytest.raises(RequestRefused, match="run 'beta', which cannot be asked now") as found:
        models.find("small", None)
    assert found.value.status == 503
    assert not models.is_ready
    assert models.find("small", "aaaa").run.name == "alpha"
    endpoint.unfinished.clear()
    assert endpoint.look().find("small", None).run.name == "beta"


def test_keys_that_lead_on_are_looked_up_in_the_files_as_they_are_now(endpoint):
    """A row whose key has changed would else have another row's part in its score."""
    endpoint.publish("alpha", "a", keys={"cid": ("shop",)})
    model = endpoint.look().find("alpha", None)

    def keys():
        found = model._rows({"user": rows_of("u1", "u2").ids})
        return found.leads["cid"].to_pylist()

    assert keys() == ["s1", None]
    endpoint.write("u1,s7,0", "u2,s8,1")
    endpoint.publish("alpha", "a", keys={"cid": ("shop",)})  # as `fdml up` does
    assert endpoint.look().find("alpha", None) is model
    assert keys() == ["s7", "s8"]
