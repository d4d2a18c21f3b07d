"""A headless Chromium, driven as a person would use it, over its DevTools protocol."""

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from websockets.sync.client import connect

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ABSENT = "left out: there is no browser; apt-get install chromium, or google-chrome, makes one"
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Chromium:
    """A browser with one page; whatever the page complains about is in `complaints`."""

    def __init__(self, folder):
        self.complaints = []
        self._numbers = itertools.count(1)
        arguments = ["--headless=new", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []  # which root cannot have
        arguments += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        with (Path(folder).parent / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen([PROGRAM, *arguments], stdout=log, stderr=log)
        self._stack, self._session = ExitStack(), None
        port = Path(folder) / "DevToolsActivePort"
        self.until(lambda: port.is_file() and port.read_text().count("\n") and self._attach(port), 60)
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def _attach(self, port):
        number, path = port.read_text().splitlines()[:2]
        address = f"ws://127.0.0.1:{number}{path}"
        self._socket = self._stack.enter_context(connect(address, max_size=None, ping_interval=None))
        page = next(
            target for target in self.command("Target.getTargets")["targetInfos"] if target["type"] == "page"
        )
        attached = self.command("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        return True

    def close(self):
        """End it."""
        self._stack.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def command(self, method, **parameters):
        """What a command gives."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(60))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._listen(answer.get("method"), answer.get("params", {}))

    def _listen(self, event, details):
        if event == "Runtime.exceptionThrown":
            self.complaints.append(details["exceptionDetails"])
        elif event == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.complaints.append(details["args"])
        elif event == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.complaints.append(details["entry"])

    def until(self, condition, seconds=30):
        """Wait for something, and give it."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, "waited in vain"
            assert self._process.poll() is None, "the browser is gone"
            time.sleep(0.05)
        return found

    def open(self, address):
        """Go to a page."""
        self.command("Page.navigate", url=address)

    def evaluate(self, expression):
        """What an expression is worth on the page."""
        found = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector):
        """What stands in an element."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent.trim() ?? ''")

    def until_text(self, selector, pattern, seconds=30):
        """Wait until an element says something."""
        return self.until(lambda: re.search(pattern, self.text(selector)), seconds)

    def place(self, selector):
        """Left, top, width and height of an element, scrolled into view."""
        return self.evaluate(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)}); "
            "it.scrollIntoViewIfNeeded(); const box = it.getBoundingClientRect(); "
            "return [box.left, box.top, box.width, box.height]; })()"
        )

    def click(self, selector, across=0.5, down=0.5):
        """Click into an element, at shares of its width and height."""
        self.drag(selector, (across, down), (across, down))

    def drag(self, selector, start, stop):
        """Press, move and release the mouse."""
        left, top, width, height = self.place(selector)

        def mouse(kind, at):
            x, y = left + at[0] * width, top + at[1] * height
            buttons = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **buttons)

        mouse("mouseMoved", start)
        mouse("mousePressed", start)
        if stop != start:
            mouse("mouseMoved", stop)
        mouse("mouseReleased", stop)

    def press(self, key):
        """Press a key."""
        details = {"key": key, "windowsVirtualKeyCode": KEYS[key], "code": "Space" if key == " " else key}
        text = {" ": " ", "Enter": "\r"}.get(key)
        self.command("Input.dispatchKeyEvent", type="keyDown", **details, **({"text": text} if text else {}))
        self.command("Input.dispatchKeyEvent", type="keyUp", **details)

    def type(self, text):
        """Type into what has the focus."""
        self.command("Input.insertText", text=text)

    def size(self, width, height, *, phone=False, dark=False):
        """Look at the page on a screen of this size."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path):
        """The page as PNG, all of it."""
        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))
