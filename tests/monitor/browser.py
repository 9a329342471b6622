"""Debian's Chromium, driven through its chromedriver by the WebDriver protocol: JSON over HTTP, no library needed."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

IS_HERE = shutil.which("chromium") is not None and shutil.which("chromedriver") is not None
WHY_NOT = "no Chromium with chromedriver here; scripts/chromium.sh installs them on Debian"
AXE = Path(__file__).parents[2] / "out" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
AXE_IS_HERE = IS_HERE and AXE.is_file()
WHY_NO_AXE = "no axe-core here; scripts/axe.sh installs it from npm"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_ARGUMENTS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Browser:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def call(self, method: str, path: str, **values: object) -> object:
        return _call(method, f"{self._address}{path}", values if method == "POST" else None)

    def open(self, url: str) -> None:
        self.call("POST", "/url", url=url)

    def run(self, script: str, *arguments: object) -> object:
        """What a script gives, run in the page by the driver; the page's policy is not asked."""
        return self.call("POST", "/execute/sync", script=script, args=list(arguments))

    def run_async(self, script: str, *arguments: object) -> object:
        """The same of a script that calls its last argument when it is done."""
        return self.call("POST", "/execute/async", script=script, args=list(arguments))

    def text(self, selector: str) -> str:
        """What a reader sees of an element; empty if it is hidden."""
        script = "const e = document.querySelector(arguments[0]); return e && (e.checkVisibility() ? e.innerText : '')"
        found = self.run(script, selector)
        assert found is not None, f"there is no {selector}"
        return str(found)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector)  # type: ignore[return-value]

    def click(self, selector: str) -> None:
        found = self.call("POST", "/element", using="css selector", value=selector)
        self.call("POST", f"/element/{found[_ELEMENT]}/click")  # type: ignore[index]

    def until(self, found, what: str, seconds: float = 30.0):
        """Wait until `found()` is true; gives what it gave."""
        deadline = time.monotonic() + seconds
        while not (value := found()):
            assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s; {self.text('body')}"
            time.sleep(0.1)
        return value

    def log(self, kind: str) -> list[dict]:
        """What has come since the last call: of "browser" its console, of "performance" what it has asked for."""
        return self.call("POST", "/se/log", type=kind)  # type: ignore[return-value]

    def requests(self) -> list[str]:
        """The addresses that were asked since the last call."""
        messages = [json.loads(each["message"])["message"] for each in self.log("performance")]
        sent = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "chrome", "about:"))]

    def size(self, width: int, height: int) -> None:
        self.call("POST", "/window/rect", width=width, height=height)

    def phone(self, width: int = 390, height: int = 844) -> None:
        """As wide as a phone, which no window is."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self.call("POST", "/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=screen)

    def desktop(self) -> None:
        """As wide as its window."""
        self.call("POST", "/goog/cdp/execute", cmd="Emulation.clearDeviceMetricsOverride", params={})

    def picture(self) -> bytes:
        """The whole page as PNG."""
        wanted = {"format": "png", "captureBeyondViewport": True}
        found = self.call("POST", "/goog/cdp/execute", cmd="Page.captureScreenshot", params=wanted)
        return base64.b64decode(found["data"])  # type: ignore[index]

    def scheme(self, name: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features})


def faults(window: Browser) -> list[str]:
    """Serious faults of accessibility that axe-core finds on the open page, each with the places where it is."""
    window.run(AXE.read_text(encoding="utf-8"))
    found = window.run_async(
        "const done = arguments[0]; axe.run().then((r) => done(r.violations), (error) => done([String(error)]))"
    )
    return [
        f"{each['id']} ({each['impact']}): {[node['html'] for node in each['nodes']]}"
        for each in found  # type: ignore[attr-defined]
        if not isinstance(each, dict) or each["impact"] in ("serious", "critical")
    ]


@contextmanager
def browser():
    """A window, closed in the end with all that belongs to it."""
    with tempfile.TemporaryDirectory(prefix="fdml-browser-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "driver.log"
        with log.open("w") as output:
            process = subprocess.Popen(["chromedriver", "--port=0"], stdout=output, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{_port(log)}"
            sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
            options = {"args": [*_ARGUMENTS, *sandbox, f"--user-data-dir={folder}/profile"]}
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            session = _call("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            window = Browser(address, session)
            try:
                yield window
            finally:
                window.call("DELETE", "")
        finally:
            process.terminate()
            process.wait(10)


def _port(log: Path) -> int:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        if found := re.search(r"started successfully on port (\d+)", log.read_text()):
            return int(found.group(1))
        time.sleep(0.05)
    raise AssertionError(f"chromedriver did not start: {log.read_text()}")


def _call(method: str, url: str, values: object = None):
    body = None if values is None else json.dumps(values).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["value"]
