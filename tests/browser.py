"""A headless Chromium driven over a pipe: open pages, click, wait, look, and list every request."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
SIZE = (1360, 900)  # pixels of a page


def find_chromium() -> str | None:
    """The browser: the variable CHROMIUM, else the first known name on the path."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named if Path(named).exists() else shutil.which(named)
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own."""
    program = find_chromium()
    assert program is not None, "no Chromium; set CHROMIUM to its path"
    ours, theirs = os.pipe(), os.pipe()  # commands to its descriptor 3, answers from its 4

    def wire() -> None:
        command, answer = os.dup(ours[0]), os.dup(theirs[1])
        os.dup2(command, 3)
        os.dup2(answer, 4)

    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=wire,
            close_fds=False,
            env={**os.environ, "HOME": profile},
        )
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield Browser(ours[1], theirs[0])
        finally:
            process.terminate()
            process.wait(10)
            os.close(ours[1])
            os.close(theirs[0])


class Browser:
    """A running browser: commands of the DevTools protocol go in, answers and events come out."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._numbers, self._buffer = itertools.count(1), b""

    @contextmanager
    def page(self) -> Iterator[Page]:
        """An empty page that shares no cookies, storage or cache with earlier ones."""
        context = self.call("Target.createBrowserContext")
        target = self.call("Target.createTarget", url="about:blank", **context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        yield Page(self, attached["sessionId"])
        self.call("Target.disposeBrowserContext", **context)

    def call(self, method: str, page: Page | None = None, **parameters: Any) -> dict[str, Any]:
        """One command, of a page or of the browser, and its answer; the page notes its events."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if page is not None:
            message["sessionId"] = page.session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(30)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            if page is not None and answer.get("sessionId") == page.session:
                page.note(answer["method"], answer["params"])

    def _read(self, seconds: float) -> dict[str, Any]:
        """The next message."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], seconds)
            assert ready, "the browser does not answer"
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser has ended"
            self._buffer += more
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message


class Page:
    """A tab of the browser.

    Attributes:
        session: its name in the DevTools protocol.
        requests: addresses that the page asked for since it was opened, its own first; data that
            stand in the page itself are none.
        errors: exceptions of its scripts and messages on its console.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self.session = session
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._browser = browser
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(*SIZE)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its answer; events on the way are noted."""
        return self._browser.call(method, self, **parameters)

    def open(self, url: str) -> None:
        """Load a page and wait for it."""
        self.requests.clear()
        self.errors.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def renew(self) -> None:
        """Leave the page, and with it what was set for it: its size, its medium, no network."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.call("Emulation.setEmulatedMedia", media="", features=[])
        self.offline(False)
        self.resize(*SIZE)
        self.requests.clear()
        self.errors.clear()

    def offline(self, cut: bool = True) -> None:
        """Cut the page off from every network, or join it again; local files stay."""
        self.call(
            "Network.emulateNetworkConditions",
            offline=cut,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60.0) -> Any:
        """Wait until an expression is true; gives its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js(
                f"(() => {{ try {{ const v = {expression};"
                " return v instanceof Node ? true : v } catch { return null } })()"
            )
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"{expression} did not become true in {seconds:g} s; {self.errors}")

    def text(self, selector: str) -> str:
        """The text of the first element."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{found} !== null")
        return str(self.js(f"{found}.innerText"))

    def click(self, selector: str, *, modifiers: int = 0) -> None:
        """A real click in the middle of the first element that a selector finds."""
        found = json.dumps(selector)
        self.wait(f"document.querySelector({found}) !== null")
        self.js(f"document.querySelector({found}).scrollIntoView({{block: 'center'}})")
        box = self.js(
            f"(r => ({{x: r.x + r.width / 2, y: r.y + r.height / 2}}))"
            f"(document.querySelector({found}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box["x"],
                y=box["y"],
                button="left",
                clickCount=1,
                modifiers=modifiers,
            )

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def screenshot(self, path: Path) -> Path:
        """What is seen as PNG."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def note(self, event: str, parameters: dict[str, Any]) -> None:
        """Keep what an event tells of requests and errors."""
        if event == "Network.requestWillBeSent":
            url = str(parameters["request"]["url"])
            if not url.startswith("data:"):
                self.requests.append(url)
        elif event == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(
                str(details.get("exception", {}).get("description", details["text"]))
            )
        elif event == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(
                f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
            )
