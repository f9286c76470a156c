"""A headless Chromium driven over its own protocol, through a pipe: no port, no driver, no package.

The Chrome DevTools Protocol is spoken as JSON messages, each ended by a zero byte, which the browser reads from
descriptor 3 and writes to 4 (``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE_S = 240.0


def find_browser() -> str:
    """Return the browser's program; without one the test is skipped, in continuous integration it fails."""
    asked = os.environ.get("HPCJOB_BROWSER")
    found = next((path for name in ([asked] if asked else _NAMES) if (path := shutil.which(name))), None)
    if found is None:
        reason = "no Chromium here (make services installs one; HPCJOB_BROWSER names another)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Browser:
    """One page in a browser of its own.

    Attributes:
        events: what the browser has told so far, as (method, parameters).
    """

    def __init__(self, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1200,900", f"--user-data-dir={folder}/profile"),
        ]
        command = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "browser", find_browser(), *flags]
        with (folder / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "about:blank"],
                pass_fds=(to_read, to_write),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "HOME": str(folder)},
            )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> Browser:
        pages: list[dict[str, Any]] = []
        while not pages:  # the browser answers before it has its first page
            pages = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        target = pages[0]["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._write)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._last_id:
                assert "error" not in told, (method, told["error"])
                result: dict[str, Any] = told["result"]
                return result
            self.events.append((told.get("method", ""), told.get("params", {})))

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            assert chunk, f"the browser does not answer (exit code {self._process.poll()})"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        return told

    def open(self, path: Path) -> None:
        """Load a page and wait until it has been drawn."""
        loader = self.call("Page.navigate", url=path.resolve().as_uri())["loaderId"]  # the blank page has another
        while not self._has_loaded(loader):
            told = self._next()
            self.events.append((told.get("method", ""), told.get("params", {})))
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def _has_loaded(self, loader: str) -> bool:
        told = [params for method, params in self.events if method == "Page.lifecycleEvent"]
        return any(params["loaderId"] == loader and params["name"] == "load" for params in told)

    def until(self, condition: str) -> None:
        """Wait until an expression of the page is true, looking at each frame that is drawn."""
        look = f"() => {condition} ? done() : requestAnimationFrame(look)"
        self.run(f"new Promise((done) => {{ const look = {look}; look() }})")

    def run(self, script: str) -> Any:
        """Return the value of an expression, as JSON carries it."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move or press the mouse (``mouseMoved``, ``mousePressed``, ``mouseReleased``)."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag with the left button."""
        held: Mapping[str, Any] = {"button": "left", "clickCount": 1}
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, **held, buttons=1)
        self.mouse("mouseMoved", *end, button="left", buttons=1)
        self.mouse("mouseReleased", *end, **held)

    def key(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path) -> None:
        """Write a PNG of what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self) -> list[Any]:
        """Return errors and warnings of the page: exceptions, its console, the browser's log, its policy."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [told for told in self.events if told[0] in kinds]

    def requested(self) -> list[str]:
        """Return the addresses that the page asked for."""
        return [told["request"]["url"] for method, told in self.events if method == "Network.requestWillBeSent"]
