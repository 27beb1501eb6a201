"""Headless Chromium through its debugging pipe: console messages, requests and measurements of a
page.
"""

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
    """The path of Chromium, None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page. `events` are all events received so far."""

    write: Any
    read: Any
    session: str = ""
    number: int = 0
    rest: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    def visit(self, address: str) -> None:
        """Opens a page and waits until it is loaded; forgets earlier events."""
        self.events.clear()
        self.command("Page.navigate", url=address)
        self.until("Page.loadEventFired")

    def command(self, method: str, **params: object) -> dict[str, Any]:
        """Sends a command and returns its result; keeps the events that arrive before it."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait(self, condition: str) -> None:
        """Waits until an expression in the page is true: at most for 500 looks at it."""
        script = f"""new Promise(done => {{
            let left = 500;
            const ask = () => ({condition}) ? done(true) : left-- ? setTimeout(ask, 50) : done(false);
            ask();
        }})"""
        answer = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert answer["result"].get("value") is True, condition

    def press(self, key: str) -> None:
        """Presses a key, such as `Tab`."""
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode={"Tab": 9}[key],
            )

    def until(self, method: str) -> None:
        """Waits for an event."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def received(self, *methods: str) -> list[dict[str, Any]]:
        """The parameters of all events with these names."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def value(self, script: str) -> Any:  # noqa: ANN401  # a script's value is any
        """The value of an expression in the page."""
        return self.command("Runtime.evaluate", expression=script, returnByValue=True)[
            "result"
        ].get("value")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Sets the size of the window and the color scheme."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Saves the whole page as PNG."""
        data = self.command("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def save_pdf(self, path: Path) -> None:
        """Saves the page as PDF."""
        path.write_bytes(
            base64.b64decode(
                self.command("Page.printToPDF", preferCSSPageSize=True, printBackground=False)[
                    "data"
                ]
            )
        )

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.read.fileno(), 1 << 16)
            assert more, "the browser ended"
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def opened(program: str, page: Path) -> Iterator[Tab]:
    """Opens a page and waits until it is loaded; ends the browser afterwards."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [
            program,
            *FLAGS,
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # The browser reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words],
            pass_fds=(to_browser[0], from_browser[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        with os.fdopen(to_browser[1], "wb") as write, os.fdopen(from_browser[0], "rb") as read:
            tab = Tab(write, read)
            try:
                _attach(tab)
                tab.visit(page.as_uri())
                yield tab
            finally:
                process.kill()
                process.wait()


def _attach(tab: Tab) -> None:
    target = tab.command("Target.createTarget", url="about:blank")["targetId"]
    tab.session = tab.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        tab.command(f"{domain}.enable")
