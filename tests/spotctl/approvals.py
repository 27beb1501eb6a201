"""The texts of refusals, in one file for each command; `SPOTCTL_APPROVE=1 pytest ...` writes what
commands say now.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import typer

from spotctl.cli.app import app
from tests.spotctl.command_line import Ended

FOLDER = Path(__file__).with_name("approved")
APPROVE = "SPOTCTL_APPROVE"

_DRAWN = re.compile(
    r"(?<=\bprocess )\d+|(?<=/tmp/spotctl-)\w+|\b(?=[0-9]*[a-f])[0-9a-f]{16,}|(?<=[a-z]-)[0-9a-f]{6}\b"
    r"|(?<=the newest stored ones, )\d+"
)
"""Numbers of processes, ids of runs and machines, hashes, and days since a fixed one, which are
others in each run."""


class Approved:
    """Compares how commands of one test ended with what was approved for it: their exit codes and
    texts on stderr.
    """

    def __init__(self, test: str, folder: Path) -> None:
        self._test, self._folder, self._calls = test, folder, 0

    def __call__(self, ended: Ended) -> None:
        self._calls += 1
        name = self._test if self._calls == 1 else f"{self._test} ({self._calls})"
        text = _DRAWN.sub("DRAWN", ended.err.replace(str(self._folder), "FOLDER"))
        printed = (
            ", with output" if ended.code and ended.out and "--json" not in ended.words else ""
        )
        said = f"exit code {ended.code}{printed}\n{text.rstrip()}"
        path = FOLDER / f"{command_of(ended.words)}.txt"
        if os.environ.get(APPROVE):
            _approve(path, name, said)
        assert said == approved_texts(path).get(name), (
            f"{path.name} has another text; {APPROVE}=1 pytest approves it"
        )


def command_of(words: tuple[str, ...]) -> str:
    """The command that a command line names, such as `lab-gavel-solve`."""
    names, known = list[str](), _commands()
    for word in words:
        if " ".join([*names, word]) in known:
            names.append(word)
    return "-".join(names) or "spotctl"


@cache
def _commands() -> frozenset[str]:
    found = set[str]()

    def walk(group: typer.Typer, words: tuple[str, ...]) -> None:
        for command in group.registered_commands:
            assert command.callback is not None
            found.add(
                " ".join(
                    (
                        *words,
                        command.name or command.callback.__name__.rstrip("_").replace("_", "-"),
                    )
                )
            )
        for inner in group.registered_groups:
            found.add(" ".join((*words, str(inner.name))))
            assert inner.typer_instance is not None
            walk(inner.typer_instance, (*words, str(inner.name)))

    walk(app, ())
    return frozenset(found)


def approved_texts(path: Path) -> Mapping[str, str]:
    """What a file approves, by test: blocks of the test's name, an exit code and a text, with empty
    lines between.
    """
    if not path.is_file():
        return {}
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    return dict(block.split("\n", 1) for block in blocks)


def _approve(path: Path, name: str, said: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with Path(tempfile.gettempdir(), "spotctl-approve.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        texts = {**approved_texts(path), name: re.sub(r"\n\n+", "\n", said)}
        path.write_text(
            "".join(f"{test}\n{text}\n\n" for test, text in sorted(texts.items())), encoding="utf-8"
        )
