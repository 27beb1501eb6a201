"""`spotctl logs`: the oldest line first; with `-f` it asks for what may be new, and waits for
machines that boot.
"""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from pathlib import Path

import pytest

from pricing_data.units import parse_time
from spotctl.agent.container.payload import Payload
from spotctl.agent.link.output import parse_times
from spotctl.clouds.errors import NotFound, Unanswered
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest
from spotctl.files.job.reader import loads, written
from spotctl.home.config import Settings
from spotctl.home.paths import KEPT_DAYS, Paths
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from spotctl.run import machine_output
from spotctl.run.machine_output import KeptOutput, OutputLine, delete_old, output_lines
from tests.spotctl.approvals import Approved
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.command_line import spotctl
from tests.spotctl.run.worlds import MARKETS, START, life

JOB = """
name: far
kind: command
run: "true"
resources: {clouds: [CLOUD]}
"""
NOON = parse_time("2026-01-31T12:00:00Z")


def launched(home: Path, *machines: str, cloud: str = "local") -> Path:
    home.mkdir(exist_ok=True)
    spec = written(loads(JOB.replace("CLOUD", cloud), home / "job.yaml"))
    with EventLog(Paths(home).log) as log:
        log.append("far-1", 0, ev.RunBegan("far", cloud, spec, "", 0))
        for number, name in enumerate(machines, 1):
            log.append(
                "far-1", number, ev.RentIntended(number, MARKETS[0], 1, None, 100, 1.0, False, 0)
            )
            log.append("far-1", number, ev.Rented(number, (ev.Granted(name, number),)))
    return home


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bytes]]:
    """What each machine adds whenever it is asked: b"" once there is no more."""
    answers, so_far = dict[str, list[bytes]](), dict[str, bytes]()

    def output(_: object, machine: str, after: int) -> bytes:
        if answers[machine]:
            so_far[machine] = so_far.get(machine, b"") + answers[machine].pop(0)
        return so_far.get(machine, b"")[after:]

    monkeypatch.setattr(FakeProvider, "output", output)
    monkeypatch.setattr(FakeProvider, "output_times", lambda *_: b"")
    monkeypatch.setattr(machine_output, "provider_of", lambda *_: FakeProvider(Replayed.of(()), 0))
    monkeypatch.setattr(machine_output, "FOLLOW_SECONDS", 0.0)
    return answers


def test_machines_that_are_gone_are_asked_for_once_and_those_that_boot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: dict[str, list[bytes]]
) -> None:
    asked = list[str]()

    def output(_: object, machine: str, after: int) -> bytes:
        asked.append(machine)
        if machine == "gone":
            raise NotFound("gone")
        if asked.count("boots") < 4:
            raise Unanswered("it boots")
        return b"hello\n" if after == 0 else b""

    assert not printed
    monkeypatch.setattr(FakeProvider, "output", output)
    launched(tmp_path, "gone", "boots")
    with EventLog(Paths(tmp_path).log) as log:
        log.append("far-1", 0, ev.MachineEnded("gone", 1, "evicted"))
    lines = output_lines("far", Settings(home=tmp_path), follow=True)
    assert list(islice(lines, 1)) == [OutputLine("boots", "hello", None)]
    assert asked == ["gone", *["boots"] * 4]


def test_output_without_times_is_shown_by_machine(
    tmp_path: Path, printed: dict[str, list[bytes]]
) -> None:
    printed.update(first=[b"1\n2"], second=[b"3\n"])
    lines = output_lines("far", Settings(launched(tmp_path, "first", "second")), follow=False)
    assert [(line.machine, line.text, line.at) for line in lines] == [
        ("first", "1", None),
        ("first", "2", None),
        ("second", "3", None),
    ]


def test_a_line_is_shown_once_it_has_ended(tmp_path: Path, printed: dict[str, list[bytes]]) -> None:
    printed.update(one=[b"a pro", b"mpt\r", b"\n50%\r60%\r", b"70%\xc3", b"\xa9\n"])
    lines = output_lines("far", Settings(launched(tmp_path, "one")), follow=True)
    assert [line.text for line in islice(lines, 4)] == ["a prompt", "50%", "60%", "70%\u00e9"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A home with the output of two rented machines that printed in turn."""
    home = launched(tmp_path / "home", "i-1", "i-2", cloud="aws")
    folder = Paths(home).output("far-1")
    folder.mkdir(parents=True)
    (folder / "i-1").write_text("one\nthree\n")
    (folder / "i-1.times").write_text(f"4 {NOON}\n10 {NOON + 5_200_000}\n")
    (folder / "i-2").write_text("two\n")
    (folder / "i-2.times").write_text(f"4 {NOON + 1_000_000}\n")
    return home


def test_lines_of_several_machines_are_in_the_order_of_their_times(kept: Path) -> None:
    assert spotctl("--home", kept, "logs", "far").out.splitlines() == [
        "2026-01-31T12:00:00Z i-1: one",
        "2026-01-31T12:00:01Z i-2: two",
        "2026-01-31T12:00:05Z i-1: three",
    ]


def test_since_leaves_out_what_was_printed_before(kept: Path, approved: Approved) -> None:
    shown = spotctl("--home", kept, "logs", "far", "--since", "2026-01-31T12:00:01Z", "--json")
    assert [json.loads(line) for line in shown.out.splitlines()] == [
        {"time": "2026-01-31T12:00:01Z", "machine": "i-2", "line": "two"},
        {"time": "2026-01-31T12:00:05.200000Z", "machine": "i-1", "line": "three"},
    ]
    refused = spotctl("--home", kept, "logs", "far", "--since", "yesterday")
    approved(refused)


def test_what_a_machine_printed_is_kept_beyond_its_life(tmp_path: Path) -> None:
    cloud = life(tmp_path).cloud
    request = MachineRequest("t", MARKETS[0], 1, None, START + 10**10, payload=Payload("p", ("p",)))
    (machine,) = cloud.create(request)
    kept = KeptOutput(tmp_path / "output")
    assert kept.output(machine.id) == b""
    for part in (b"first\n", b"second\n"):
        cloud.print(machine.id, part)
        kept.fetch(cloud, machine.id, now=True)
    # Too early to ask again.
    cloud.print(machine.id, b"third\n")
    kept.fetch(cloud, machine.id)
    cloud.terminate([machine.id])
    later = KeptOutput(tmp_path / "output")
    assert later.output(machine.id, after=6) == b"second\n"
    assert list(parse_times(later.output_times(machine.id))) == [(6, START), (13, START)]
    assert {file.stat().st_mode & 0o077 for file in (tmp_path / "output").iterdir()} == {0}


def test_old_output_is_deleted_and_results_stay(tmp_path: Path) -> None:
    now, days = time.time(), 86400.0
    for run, age in (("old", KEPT_DAYS + 1), ("new", KEPT_DAYS - 1)):
        for name in ("model.npz", "output/m-1", "output/m-1.times", "output/mine.txt"):
            path = tmp_path / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (now - age * days, now - age * days))
    delete_old(tmp_path, now)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    results = {
        f"{run}/{name}" for run in ("old", "new") for name in ("model.npz", "output/mine.txt")
    }
    assert left == results | {"new/output/m-1", "new/output/m-1.times"}
