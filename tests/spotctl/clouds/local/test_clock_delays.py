"""Delays of the local market's machines: which waits count, and which processes are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spotctl.clouds.local import clock as delays
from spotctl.clouds.local.clock import MAX_START_NS, Delays, MarketClock, delay_of
from spotctl.clouds.local.provider import LocalProvider
from spotctl.clouds.local.replayed import Replayed

MS = 10**6


@pytest.mark.parametrize(
    ("threads", "others", "delay"),
    [
        ([(200, 800)], 1800, 800),  # a program that computes all the time
        ([(100, 400)], 1400, 400),  # one that sleeps half of the time
        (
            [(100, 400), (100, 400)],
            1800,
            757,
        ),  # two of which each waits for the other, so at most one is ready
        ([(200, 800), (200, 800)], 1600, 711),  # two side by side
        (
            [(700, 300), (700, 300), (600, 400)],
            0,
            0,
        ),  # they only share the computer among themselves
        ([(1000, 0)], 1000, 0),  # another program has a processor of its own
        ([(0, 0)], 2000, 0),  # it sleeps
        ([], 2000, 0),
    ],
)
def test_delays_of_one_second(threads: list[tuple[int, int]], others: int, delay: int) -> None:
    given = [(run * MS, wait * MS) for run, wait in threads]
    ran = sum(run for run, _ in given)
    assert delay_of(given, ran, others * MS, 1000 * MS) // MS == delay


class Proc:
    """A `/proc` of the test, with one thread for each process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.busy(0)

    def busy(self, ticks: int) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "stat").write_text(f"cpu {ticks} 0 0 999 5 0 0 0 0 0\n")

    def process(
        self, pid: int, run: int = 0, wait: int = 0, children: tuple[int, ...] = ()
    ) -> None:
        thread = self.root / str(pid) / "task" / str(pid)
        thread.mkdir(parents=True, exist_ok=True)
        (self.root / str(pid) / "stat").write_text(
            f"{pid} (a) b) S " + " ".join(map(str, range(18))) + " 77 0\n"
        )
        (thread / "schedstat").write_text(f"{run * MS} {wait * MS} 9\n")
        (thread / "children").write_text(" ".join(map(str, children)))


class Market:
    def __init__(self, root: Path, patch: Callable[[str, object], None]) -> None:
        self.now, self.proc = 10**12, Proc(root / "proc")
        self.clock = MarketClock(root / "clock.json", lambda: self.now)
        self.clock.start(0, 60.0)
        patch("_PROC", self.proc.root)
        patch("time", self)
        self.folder = root / "delays"

    def monotonic_ns(self) -> int:
        return self.now

    def takes_part(self, pid: int, depth: int, starting: int | None = None) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{pid}-{pid}.json").write_text(
            json.dumps({"born": "77", "depth": depth, "starting": starting})
        )

    def stood_after(self, seconds: float) -> float:
        """Seconds for which the clock is to stand in all, once this time has passed and was
        measured.
        """
        self.now += round(seconds * 1e9)
        Delays(self.clock, 1).look()
        return round(self.clock.standing.by(self.now + 10**12) / 1e9, 3)


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    return Market(tmp_path, lambda name, value: monkeypatch.setattr(delays, name, value))


def test_the_programs_of_machines_count_and_what_starts_them_does_not(market: Market) -> None:
    market.takes_part(10, depth=2)
    market.proc.process(10, 5, 5, children=(11,))
    market.proc.process(11, 5, 5, children=(12,))
    market.proc.process(12, 5, 5)
    assert market.stood_after(1) == 0, "what was before the first look is unknown"
    market.proc.busy(200)
    for pid, wait in ((10, 900), (11, 900), (12, 505)):
        market.proc.process(pid, 5, wait, {10: (11,), 11: (12,)}.get(pid, ()))
    assert market.stood_after(1) == 0.5


def test_who_orders_machines_counts_while_none_has_a_program(market: Market) -> None:
    market.takes_part(10, depth=1)
    market.proc.process(10)
    market.stood_after(1)
    market.proc.process(10, 200, 800)
    market.proc.busy(200)
    assert market.stood_after(1) == 0.8


def test_the_start_of_machines_is_a_delay_for_a_minute(market: Market) -> None:
    market.takes_part(10, depth=1, starting=market.now)
    market.proc.process(10)
    assert market.stood_after(1) == 1
    assert market.stood_after(50) == 51
    assert market.stood_after(50) == MAX_START_NS / 1e9
    assert market.stood_after(50) == 60


def test_a_dead_process_delays_nothing(market: Market) -> None:
    market.takes_part(10, depth=1, starting=market.now)
    assert market.stood_after(1) == 0
    assert not list(market.folder.glob("*.json"))


def test_a_process_that_got_the_number_of_a_dead_one_delays_nothing(market: Market) -> None:
    market.takes_part(10, depth=1, starting=market.now)
    market.proc.process(10)
    stat = market.proc.root / "10" / "stat"
    stat.write_text(stat.read_text().replace(" 77 ", " 78 "))
    assert market.stood_after(1) == 0


def test_a_real_child_is_measured(tmp_path: Path) -> None:
    clock = MarketClock(tmp_path / "clock.json")
    clock.start(0, 1.0)
    own = Delays(clock, 1)
    own.take_part()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        own.look()
        threads = json.loads((tmp_path / "delays" / "threads").read_text())["threads"]
        assert {str(os.getpid()), str(child.pid)} <= threads.keys()
        assert child.stdin is not None
        child.stdin.close()


def test_the_clock_stands_until_a_run_first_decides(tmp_path: Path) -> None:
    with closing(LocalProvider(tmp_path, lambda: Replayed.of(()))) as market:
        market.begin(0, 1.0)
        market.attend(starting="the run")
        until = time.monotonic() + 60
        while not market.stood_seconds and time.monotonic() < until:
            time.sleep(0.01)
        assert market.stood_seconds
        market.attend()
        (own,) = (json.loads(file.read_text()) for file in (tmp_path / "delays").glob("*-*.json"))
        assert own["starting"] is None
