"""The files of examples/ as far as they can be checked here: they parse, and what they name exists."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fdml.monitor.prometheus import metrics_text
from fdml.serving.online.app import _OPEN
from fdml.settings.federation import read_run
from tests.docs.fenced import taken
from tests.monitor.test_prometheus import STATE

EXAMPLES = Path(__file__).parents[1] / "examples"
UNITS = sorted((EXAMPLES / "systemd").glob("*.service"))
SCRIPT = EXAMPLES / "monthly" / "retrain_and_score.sh"
MANIFESTS = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
ALERTS = EXAMPLES / "prometheus" / "alerts.yml"
DASHBOARD = EXAMPLES / "prometheus" / "grafana-dashboard.json"


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


def services():
    return documents(EXAMPLES / "container" / "compose.yaml")[0]["services"]


def pod(path):
    (found,) = (each["spec"]["template"]["spec"] for each in documents(path) if each["kind"] == "StatefulSet")
    return found


def containers():
    return [each for path in MANIFESTS for each in pod(path)["containers"]]


def commands():
    """Every fdml command in the examples, by where it stands."""
    for path in UNITS:
        words = shlex.split(re.search(r"^ExecStart=(.+)$", path.read_text(), re.MULTILINE)[1])
        if words[0].endswith("/fdml"):
            yield path.name, words[1:]
    for line in SCRIPT.read_text().splitlines():
        if line.startswith("fdml "):
            yield SCRIPT.name, shlex.split(line, comments=True)[1:]
    for name, service in services().items():
        yield f"compose: {name}", service["command"]
        if (test := service["healthcheck"]["test"])[1] == "fdml":
            yield f"compose: health of {name}", test[2:]
    for container in containers():
        yield f"kubernetes: {container['name']}", container["args"]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "exec" in (probe := container.get(kind, {})):
                yield f"kubernetes: {kind}", probe["exec"]["command"][1:]


COMMANDS = list(commands())


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[place for place, _ in COMMANDS])
def test_every_command_is_one_that_fdml_takes(place, words):
    taken(words)  # raises at an option that is not there, or a value that is wrong


def test_enough_commands_are_found():
    assert len(COMMANDS) >= 15


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_every_unit(tmp_path):
    """Programs and folders of another machine are replaced by those of this one."""
    fdml = Path(sys.executable).with_name("fdml")
    paths = []
    for path in (*UNITS, *(EXAMPLES / "systemd").glob("*.timer")):
        copy = tmp_path / path.name.replace("@.", "@store.")
        copy.write_text(path.read_text().replace("/srv/fdml/venv/bin/fdml", str(fdml)))
        paths.append(str(copy))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "fdml" in line]
    assert ours == []


@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_a_unit_ends_in_order_and_can_gain_no_rights(path):
    text = path.read_text()
    for line in ("SuccessExitStatus=130", "KillMode=mixed", "NoNewPrivileges=yes", "ProtectSystem=strict", "User=fdml"):
        assert line in text.splitlines()


def test_the_script_is_one_that_the_shell_reads():
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True, timeout=10)
    assert "set -eu" in SCRIPT.read_text()


@pytest.mark.parametrize("fails_at", ["check", "run", "predict", None])
def test_the_script_stops_at_a_failure_and_goes_on_when_it_is_started_again(tmp_path, fails_at):
    """With a stand-in for fdml that notes how it is called, fails once where it is told to, and writes scores."""
    stand_in = tmp_path / "programs" / "fdml"
    stand_in.parent.mkdir()
    stand_in.write_text(
        '#!/bin/sh\necho "$1" >> calls\nif [ "$1" = "$FAILS_AT" ] && [ ! -e failed ]; then touch failed; exit 1; fi\n'
        'while [ $# -gt 0 ]; do if [ "$1" = --out ]; then echo scores > "$2"; fi; shift; done\n'
    )
    stand_in.chmod(0o755)
    environment = {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", "FAILS_AT": fails_at or ""}
    command = ["sh", str(SCRIPT)]
    first = subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=30)
    assert (first.returncode != 0) == (fails_at is not None)
    assert len(list(tmp_path.glob("scores/*.parquet"))) == (fails_at is None), "no half of a file is shown"
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=30)
    (scores,) = (path for path in tmp_path.glob("scores/*.parquet") if not path.name.startswith("."))
    assert re.fullmatch(r"\d{4}-\d\d\.parquet", scores.name)
    assert (tmp_path / "calls").read_text().split()[-4:] == ["check", "run", "predict", "report"]


@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_a_unit_writes_in_the_folder_of_its_own_side_alone(path):
    (written,) = re.findall(r"^ReadWritePaths=(.+)$", path.read_text(), re.MULTILINE)
    assert written == ("/srv/fdml/%i" if "@" in path.name else "/srv/fdml/server")


def test_the_monthly_run_has_settings_that_work(tmp_path):
    (tmp_path / "federation.toml").write_text('parties = ["store", "browser"]\n')
    text = (EXAMPLES / "monthly" / "monthly.toml").read_text()
    (tmp_path / "run.toml").write_text(text.replace('"promoted"', f'"{"ab" * 16}"'))
    run = read_run(tmp_path / "run.toml")
    assert (run.name, run.promotion.metric) == ("monthly", "auc")


def test_the_image_is_not_root_s_and_has_the_extra_of_the_endpoint():
    text = (EXAMPLES / "container" / "Containerfile").read_text()
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert ".[serving]" in text
    assert re.search(r'^ENTRYPOINT \["fdml"\]$', text, re.MULTILINE)
    copied = {name for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE) for name in line.split()}
    assert re.search(r"--constraint (\S+)", text)[1] in copied
    assert copied == {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "fdml"}, "what a wheel is built of"
    assert all((EXAMPLES.parent / name).exists() for name in copied)


def test_services_of_the_compose_file_are_locked_down_and_see_their_own_folder_alone():
    for name, service in services().items():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        folders = {volume.split(":")[0] for volume in service["volumes"]}
        assert folders == {"./shop/federation.toml", f"./shop/{name}", "cache"}


@pytest.mark.parametrize("path", MANIFESTS, ids=[path.name for path in MANIFESTS])
def test_a_manifest_is_whole_and_its_parts_fit(path):
    for document in documents(path):
        assert {"apiVersion", "kind", "metadata", "spec"} <= set(document)
    (service,) = (each for each in documents(path) if each["kind"] == "Service")
    (workload,) = (each for each in documents(path) if each["kind"] == "StatefulSet")
    spec, found = workload["spec"], pod(path)
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == service["spec"]["selector"]
    assert spec["replicas"] == 1
    volumes = {each["name"] for each in found["volumes"]}
    volumes |= {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    ports = set()
    for container in (*found["initContainers"], *found["containers"]):
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["readOnlyRootFilesystem"]
        ports |= {each["name"] for each in container.get("ports", ())}
    assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
    assert found["securityContext"]["runAsNonRoot"]


def test_keys_come_from_secrets_and_every_container_has_a_probe():
    for path in MANIFESTS:
        secrets = {each["secret"]["secretName"] for each in pod(path)["volumes"] if "secret" in each}
        assert {name for name in secrets if name.endswith("-keys")}
    for container in containers():
        probe = container["readinessProbe"]
        assert {"exec", "tcpSocket", "httpGet"} & set(probe)
        if "httpGet" in probe:
            assert probe["httpGet"]["path"] in _OPEN, "it needs no token"


def known_metrics():
    """The names that /metrics has when everything is known."""
    curve = {"values": [0.5]}
    state = {**STATE, "curves": dict.fromkeys(("train_loss", "test_loss", "test_metric"), curve)}
    return set(re.findall(r"^(fdml_\w+)", metrics_text(state), re.MULTILINE))


def names_in(expression):
    return set(re.findall(r"\bfdml_\w+", expression))


def test_every_metric_of_an_alert_exists_and_every_alert_says_what_to_do():
    (group,) = documents(ALERTS)[0]["groups"]
    for rule in group["rules"]:
        assert names_in(rule["expr"]) <= known_metrics(), rule["alert"]
        assert {"summary", "what_to_do"} <= set(rule["annotations"])
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule)))
        assert labels <= {"run", "party", "reason", "lag"}


def test_every_metric_of_the_dashboard_exists_and_all_are_on_it():
    dashboard = json.loads(DASHBOARD.read_text())
    shown = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert names_in(target["expr"])
            shown |= names_in(target["expr"])
    assert shown == known_metrics()
    assert names_in(dashboard["templating"]["list"][1]["query"]) <= known_metrics()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_prometheus_scrapes_where_the_page_and_the_endpoint_are():
    (found,) = documents(EXAMPLES / "prometheus" / "prometheus.yml")
    (job,) = found["scrape_configs"]
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:7480", "127.0.0.1:8080"]
    assert found["rule_files"] == [ALERTS.name]


def test_the_list_of_examples_names_every_folder():
    named = set(re.findall(r"\]\((\w+)/\)", (EXAMPLES / "README.md").read_text()))
    assert named == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
