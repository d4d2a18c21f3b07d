"""A page in a real browser: headless Chromium, driven over its own protocol."""

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROBLEMS = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
PATIENCE = 120  # seconds, on a machine that has other things to do


def find_browser():
    """The program, or leave the test out and say how to get it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("left out: there is no Chromium; apt-get install chromium brings it")
    return found


@contextmanager
def browser(folder: Path):
    """A browser with one page, whose profile lies in a folder."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
    command = [find_browser(), *options, *quiet, "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    with (folder.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "about:blank"],
            stdout=log,
            stderr=log,
            env={**os.environ, "NO_AT_BRIDGE": "1"},
        )
    try:
        with connect(_address(folder, process), max_size=None, open_timeout=PATIENCE, proxy=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait()


def _address(folder, process):
    """Where the browser listens, which it writes into its profile."""
    written = folder / "DevToolsActivePort"
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        if written.is_file() and len(lines := written.read_text().split()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise AssertionError("Chromium did not start; see chromium.log")


class Page:
    """One page: what it is asked, and what it complains of."""

    def __init__(self, socket):
        self.socket, self.number, self.events, self.session = socket, 0, [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        """Call a method of the protocol, and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv(timeout=PATIENCE))
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, address, width, height=800, scheme="light"):
        """Show an address in a window of some size, and wait until everything is there."""
        self.events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.send("Page.navigate", url=address)
        until = time.monotonic() + PATIENCE
        while self.ask("document.readyState + ' ' + location.href") != f"complete {address}":
            assert time.monotonic() < until
            time.sleep(0.05)

    def ask(self, expression):
        """The value of an expression of JavaScript."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def complaints(self):
        """Errors and warnings of the console, and exceptions, since the page was opened."""
        self.ask("1")
        return [
            event
            for event in self.events
            if event.get("method") in PROBLEMS
            and event["params"].get("type") not in ("log", "info", "debug")
            and event["params"].get("entry", {}).get("level") not in ("info", "verbose")
        ]

    def requests(self):
        """The addresses that were asked for, those within the page aside."""
        asked = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        addresses = [event["params"]["request"]["url"] for event in asked]
        return [address for address in addresses if not address.startswith("data:")]

    def screenshot(self, path):
        """Keep a picture of the whole page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}
        taken = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(taken["data"]))
