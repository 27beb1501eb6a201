"""The README's recording: `python -m bench.readme_recording` launches the quick start in a terminal
and draws it.

The terminal is a real one (a pseudo-terminal), and so are the run and its times; only the folder of
this user is shown as `~`. The picture is one SVG that plays by itself, several times as fast as the
run, and rests on what the run printed last. With an argument, the bytes that a terminal received
before are read from that file instead, and nothing is run; `--keep FILE` keeps those of this run.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from spotctl.show.costs.markup import Html, el

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "launch.svg"
COMMAND = "spotctl launch examples/quickstart.yaml --yes"
COLUMNS, ROWS = 92, 16
FRAMES, SECONDS, REST_SECONDS, READ_SECONDS = 48, 22.0, 7.0, 3.5
"""How many moments are drawn, in how much time, how long the last one rests, and how long one that
brings many lines at once, such as the plan."""
MANY_LINES = 10

_CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r\n|[\r\n]|[^\x1b\r\n]+")
_SIZE, _WIDE, _LINE, _LEFT, _TOP = 14, 8.43, 19, 18, 44
_STYLES = {"1": "b", "2": "d", "32": "g", "33": "y", "31": "r", "36": "c"}
_STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", "DejaVu Sans Mono", monospace; fill: #d7dce2;
  white-space: pre; }
.paper { fill: #14171b; stroke: #3a414a; } .bar { fill: #8b95a1; font-size: 13px; }
.b { font-weight: 700; fill: #fff; } .d { fill: #8b95a1; } .g { fill: #48bd9f; } .y { fill: #f0a848; }
.r { fill: #f07878; } .c { fill: #6cb6e6; }
"""

Cell = tuple[str, str]
Line = tuple[Cell, ...]


@dataclass
class Screen:
    """The lines of a terminal, for the codes that `rich` writes: lines that are written over, and
    colours.
    """

    columns: int = COLUMNS
    rows: int = ROWS
    lines: list[list[Cell]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: str = ""

    def feed(self, text: str) -> None:
        for part in _CODE.finditer(text):
            whole, (values, code) = part.group(), part.groups()
            if code is not None:
                self._obey(values, code)
            elif whole in ("\r", "\n", "\r\n"):
                self.column = 0 if "\r" in whole else self.column
                self.row += "\n" in whole
            else:
                self._write(whole)
            while self.row >= len(self.lines):
                self.lines.append([])

    @property
    def shown(self) -> tuple[Line, ...]:
        """The last lines, as many as fit."""
        lines = self.lines
        while len(lines) > 1 and not lines[-1]:
            lines = lines[:-1]
        return tuple(tuple(line) for line in lines[-self.rows :])

    def _obey(self, values: str, code: str) -> None:
        if code == "m":
            chosen = [_STYLES[value] for value in values.split(";") if value in _STYLES]
            self.style = chosen[-1] if chosen else ""
        elif code == "A":
            self.row = max(self.row - int(values or 1), 0)
        elif code == "K":
            self.lines[self.row] = [] if values == "2" else self.lines[self.row][: self.column]

    def _write(self, text: str) -> None:
        for letter in text:
            if self.column == self.columns:
                self.row, self.column = self.row + 1, 0
            while self.row >= len(self.lines):
                self.lines.append([])
            line = self.lines[self.row]
            line += [(" ", "")] * (self.column - len(line))
            line[self.column : self.column + 1] = [(letter, self.style)]
            self.column += 1


@dataclass(frozen=True)
class Frame:
    """The terminal at a moment of the run, and for how many seconds the picture shows it."""

    lines: tuple[Line, ...]
    seconds: float


def recorded() -> list[tuple[float, str]]:
    """Launches the quick start; returns what its terminal received, and after how many seconds."""
    with tempfile.TemporaryDirectory() as user:
        mine, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("SPOTCTL", "XDG"))
        }
        process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, *COMMAND.split()[1:]],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=ROOT,
            env={**environment, "TERM": "xterm-256color", "HOME": user},
            start_new_session=True,
        )
        os.close(inside)
        began, received = time.monotonic(), list[tuple[float, str]]()
        # A terminal whose last process has ended cannot be read.
        with suppress(OSError):
            while new := os.read(mine, 1 << 16):
                received.append(
                    (time.monotonic() - began, new.decode(errors="replace").replace(user, "~"))
                )
        os.close(mine)
        if process.wait():
            raise SystemExit("the launch failed:\n" + "".join(text for _, text in received[-20:]))
    return received


_IN_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from spotctl.cli.app import main
main()
"""


def frames_of(received: Sequence[tuple[float, str]]) -> list[Frame]:
    """The moments to draw, evenly over the run, and where many lines came at once."""
    screen, whole = Screen(), received[-1][0]
    prompt: Line = tuple((letter, "b") for letter in f"$ {COMMAND}")
    screen.lines, screen.row = [list(prompt), []], 1
    frames, due, before = [Frame(screen.shown, 1.0)], 0.0, screen.shown
    for at, text in received:
        shown = screen.shown
        brings_many = len(set(shown) - set(before)) >= MANY_LINES
        if shown != before and (at >= due or brings_many):
            frames.append(Frame(shown, READ_SECONDS if brings_many else SECONDS / FRAMES))
            due, before = at + whole / FRAMES, shown
        screen.feed(text)
    return [*frames, Frame(screen.shown, REST_SECONDS)]


def drawn(frames: Sequence[Frame], seconds: float) -> Html:
    """One SVG that shows its frames one at a time."""
    width, high = round(COLUMNS * _WIDE + 2 * _LEFT), _TOP + ROWS * _LINE + 14
    names = {line: f"l{number}" for number, line in enumerate(dict.fromkeys(_lines(frames)))}
    played = sum(frame.seconds for frame in frames)
    said = "; ".join(
        " ".join(_text(line).split())
        for line in frames[-1].lines
        if ": done (" in _text(line) or "saved" in _text(line)
    )
    return el(
        "svg",
        el("title", f"{COMMAND}: {said}"),
        el("style", Html(f"{_STYLE}{_film(frames, high, played)}")),
        el("defs", *(el("text", *_spans(line), id=name) for line, name in names.items())),
        el("rect", x=0.5, y=0.5, width=width - 1, height=high - 1, rx=10, class_="paper"),
        *(el("circle", cx=_LEFT + 4 + 18 * dot, cy=20, r=5, class_="d") for dot in range(3)),
        el(
            "text",
            f"a run of {seconds:.0f} s, {seconds / played:.1f} times as fast",
            x=_LEFT + 70,
            y=25,
            class_="bar",
        ),
        el(
            "svg",
            el(
                "g",
                *(_frame(frame, number * high, names) for number, frame in enumerate(frames)),
                class_="film",
            ),
            y=_TOP - 8,
            width=width,
            height=high - _TOP + 8,
            overflow="hidden",
        ),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {high}",
        width=width,
        height=high,
        role="img",
    )


def _lines(frames: Iterable[Frame]) -> Iterator[Line]:
    return (line for frame in frames for line in frame.lines if _text(line).strip())


def _text(line: Line) -> str:
    return "".join(letter for letter, _ in line)


def _film(frames: Sequence[Frame], high: int, played: float) -> str:
    """The last frame is in view where nothing moves."""
    at, steps = 0.0, list[str]()
    for number, frame in enumerate(frames):
        steps.append(f"{100 * at / played:.2f}% {{ transform: translateY(-{number * high}px) }}")
        at += frame.seconds
    return (
        f".film {{ transform: translateY(-{(len(frames) - 1) * high}px);"
        f" animation: film {played:.1f}s step-end infinite }}\n"
        f"@keyframes film {{ {' '.join(steps)} }}\n"
        "@media (prefers-reduced-motion: reduce) { .film { animation: none } }\n"
    )


def _frame(frame: Frame, top: int, names: dict[Line, str]) -> Html:
    shown = [(names[line], row) for row, line in enumerate(frame.lines) if line in names]
    return el(
        "g",
        *(el("use", href=f"#{name}", x=_LEFT, y=_LINE * (row + 1) + top) for name, row in shown),
    )


def _spans(line: Line) -> Iterator[Html | str]:
    for style, cells in groupby(line, key=lambda cell: cell[1]):
        text = "".join(letter for letter, _ in cells)
        yield el("tspan", text, class_=style) if style else text


def main() -> None:
    """Writes the picture, and prints its size and length."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("received", type=Path, nargs="?")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    received = json.loads(given.received.read_text()) if given.received else recorded()
    if given.keep:
        given.keep.write_text(json.dumps(received))
    frames = frames_of(received)
    PICTURE.write_text(f"{drawn(frames, received[-1][0])}\n", encoding="utf-8")
    print(
        f"{PICTURE.name}: {PICTURE.stat().st_size / 1000:.0f} kB, {len(frames)} frames of "
        f"{received[-1][0]:.0f} s"
    )


if __name__ == "__main__":
    main()
