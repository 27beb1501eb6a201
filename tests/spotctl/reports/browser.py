"""Chromium without a window, spoken to through its debugging pipe: what a page says, asks for, and measures."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-extensions",
)


def installed() -> str | None:
    """Chromium's name, if it is there."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page. `events` are all that it told so far."""

    write: Any
    read: Any
    session: str = ""
    number: int = 0
    rest: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """A command and its answer; what is told meanwhile is kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while True:
            heard = self._next()
            if heard.get("id") == self.number:
                assert "error" not in heard, heard
                result: dict[str, Any] = heard["result"]
                return result
            self.events.append(heard)

    def until(self, method: str) -> None:
        """Hears what is told until it is this."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def said(self, *methods: str) -> list[dict[str, Any]]:
        """What was told under these names."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def value(self, script: str) -> Any:  # noqa: ANN401  # a script's value is any
        """What an expression is in the page."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def sized(self, width: int, height: int, *, dark: bool = False) -> None:
        """The page in a window of a size, by day or by night."""
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def printed(self, path: Path) -> None:
        """The page as PDF."""
        path.write_bytes(
            base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"])
        )

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.read.fileno(), 1 << 16)
            assert more, "the browser ended"
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        heard: dict[str, Any] = json.loads(line)
        return heard


@contextmanager
def opened(program: str, page: Path) -> Iterator[Tab]:
    """A page that has loaded; the browser is gone afterwards."""
    hears, says = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # The browser reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{hears[0]} 4>&{says[1]}'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words],
            pass_fds=(hears[0], says[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(hears[0])
        os.close(says[1])
        with os.fdopen(hears[1], "wb") as write, os.fdopen(says[0], "rb") as read:
            tab = Tab(write, read)
            try:
                _load(tab, page)
                yield tab
            finally:
                process.kill()
                process.wait()


def _load(tab: Tab, page: Path) -> None:
    target = tab.ask("Target.createTarget", url="about:blank")["targetId"]
    tab.session = tab.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        tab.ask(f"{domain}.enable")
    tab.events.clear()
    tab.ask("Page.navigate", url=page.as_uri())
    tab.until("Page.loadEventFired")
