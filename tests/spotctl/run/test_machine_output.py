"""`spotctl logs -f`: it asks for what may be new, and waits for machines that boot."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from spotctl.config import Settings
from spotctl.files.job.reader import loads, written
from spotctl.machines.base import NotFound, Unanswered
from spotctl.paths import Paths
from spotctl.run import machine_output
from spotctl.runlog import events as ev
from spotctl.runlog.store import EventLog
from tests.spotctl.run.worlds import MARKETS

JOB = """
name: far
kind: command
run: "true"
resources: {clouds: [local]}
"""


def test_machines_that_are_gone_are_asked_for_once_and_those_that_boot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def printed(_: object, machine: str, after: int) -> bytes:
        asked.append(machine)
        if machine == "gone":
            raise NotFound("gone")
        if asked.count("boots") < 4:
            raise Unanswered("it boots")
        return b"hello\n" if after == 0 else b""

    monkeypatch.setattr(machine_output, "printed", printed)
    monkeypatch.setattr(machine_output, "provider_of", lambda *_: None)
    monkeypatch.setattr(machine_output, "FOLLOW_SECONDS", 0.0)
    with EventLog(Paths(tmp_path).log) as log:
        log.append("far-1", 0, ev.RunBegan("far", "local", written(loads(JOB, tmp_path / "job.yaml")), "", 0))
        log.append("far-1", 0, ev.RentIntended(1, MARKETS[0], 2, None, 100, 1.0, False, 0))
        log.append("far-1", 0, ev.Rented(1, (ev.Granted("gone", 0), ev.Granted("boots", 0))))
        log.append("far-1", 0, ev.MachineEnded("gone", 1, "evicted"))
    lines = machine_output.output_lines("far", Settings(home=tmp_path), follow=True)
    assert list(islice(lines, 1)) == ["boots: hello\n"]
    assert asked == ["gone", *["boots"] * 4]


def test_the_oldest_machine_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_output, "printed", lambda _, machine, after: b"" if after else machine.encode())
    monkeypatch.setattr(machine_output, "provider_of", lambda *_: None)
    with EventLog(Paths(tmp_path).log) as log:
        log.append("far-1", 0, ev.RunBegan("far", "local", written(loads(JOB, tmp_path / "job.yaml")), "", 0))
        for number, name in enumerate(("first", "second", "third"), 1):
            log.append("far-1", number, ev.RentIntended(number, MARKETS[0], 1, None, 100, 1.0, False, 0))
            log.append("far-1", number, ev.Rented(number, (ev.Granted(name, number),)))
    lines = machine_output.output_lines("far", Settings(home=tmp_path), follow=False)
    assert list(lines) == ["first: first\n", "second: second\n", "third: third\n"]
