"""How busy graphics cards are: from a program in the place of nvidia-smi, through an agent and its link, to the log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import MINUTE, SECOND
from spotctl.agent import gpu_use
from spotctl.agent.gpu_use import GpuUse, GpuWatch, parsed
from spotctl.clouds.base import Machine, MachineState
from spotctl.log import event_json, events as ev
from spotctl.log.folding import fold
from spotctl.run.turn.observe import news
from tests.spotctl.agent.agents import Agent
from tests.spotctl.clouds.test_link import to
from tests.spotctl.show.runs.made_up_run import WILD, at, granted, order, rows
from tests.waiting import eventually

TWO_CARDS = "echo '94, 49813, 81559'; echo '80, 49651, 81559'"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of NVIDIA's name, the first in the PATH; tests write what it does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "nvidia-smi"


def does(tool: Path, script: str) -> None:
    new = tool.with_suffix(".new")
    new.write_text(f"#!/bin/sh\n{script}\n")
    new.chmod(0o755)
    new.replace(tool)


def test_an_agent_says_how_busy_its_cards_are(tmp_path: Path, tool: Path) -> None:
    does(tool, f'[ "$*" = "{" ".join(gpu_use._QUERY)}" ] || exit 2; {TWO_CARDS}')
    agent = Agent(tmp_path)
    try:
        link = to(agent)
        eventually(lambda: link.status().gpus == GpuUse(87, 61))
    finally:
        agent.close()


def test_a_tool_that_hangs_holds_nothing_up(tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_use, "EVERY_SECONDS", 0.0)
    watch = GpuWatch(tmp_path)
    does(tool, TWO_CARDS)
    eventually(watch.use)
    hangs = tmp_path / "hangs"
    does(tool, f"touch {hangs}; exec sleep 1000")
    eventually(lambda: watch.use() and hangs.exists())
    monkeypatch.setattr(gpu_use, "LONGEST_SECONDS", 0.0)
    assert watch.use() is None
    does(tool, TWO_CARDS)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_use, "EVERY_SECONDS", 0.0)
    eventually(lambda: watch.use() == GpuUse(87, 61))
    does(tool, "echo 'NVIDIA-SMI has failed'; exit 9")
    eventually(lambda: watch.use() is None)
    monkeypatch.setattr(gpu_use, "EVERY_SECONDS", 1e9)
    eventually(lambda: watch.use() is None and watch._sample is None)


@pytest.mark.parametrize(
    ("answer", "use"),
    [
        ("0, 0, 15360\n", GpuUse(0, 0)),
        ("[N/A], [N/A], [N/A]\n", None),
        ("[N/A], 300, 400\n50, 100, 400\n", GpuUse(50, 25)),
        ("No devices were found\n", None),
        ("", None),
    ],
)
def test_cards_that_say_nothing_do_not_count(answer: str, use: GpuUse | None) -> None:
    assert parsed(answer) == use


def test_the_log_gets_noticeable_changes_once_a_minute() -> None:
    logged: list[tuple[float, ev.Event]] = [(0, order(1, WILD, 60_000_000, 1)), (0, granted(1, 0, "m"))]
    logged.append((0, ev.MachineRan("m")))
    machine = Machine("m", WILD, 60_000_000, MachineState.RUNNING, at(0), {})

    def seen(seconds: int, gpus: GpuUse | None) -> list[ev.Event]:
        listed = [replace(machine, gpus=gpus)]
        found = news(fold(rows(logged)), listed, at(0) + seconds * SECOND, "fake")
        logged.extend(
            (seconds * SECOND / MINUTE, event_json.from_json(type(one).__name__, event_json.to_json(one)))
            for one in found
        )
        return found

    assert seen(1, None) == []
    assert seen(2, GpuUse(50, 30)) == [ev.CardsUsed("m", 50, 30)]
    assert seen(61, GpuUse(90, 30)) == [], "within a minute"
    assert seen(62, GpuUse(59, 39)) == [], "a small change"
    assert seen(63, GpuUse(50, 40)) == [ev.CardsUsed("m", 50, 40)]
    assert seen(200, None) == [ev.CardsUsed("m", None, None)]
    assert seen(300, None) == []
