"""The market's clock: the same for all readers, and not moved when other clocks jump."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.lease.lease_files import boot_id
from spotctl.clouds.local.clock import MarketClock

SECOND = 1_000_000


class Computer:
    """A computer whose monotonic clock and boots the test controls."""

    def __init__(self, path: Path) -> None:
        self.path, self.nanos, self.boot = path, 5 * 10**9, "first"

    def clock(self) -> MarketClock:
        return MarketClock(self.path, lambda: self.nanos, lambda: self.boot)

    def let_pass(self, seconds: float) -> None:
        self.nanos += round(seconds * 1e9)

    def restart(self) -> None:
        self.boot, self.nanos = self.boot + "x", 1


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path / "clock.json")


def test_market_time_passes_at_its_speed_for_every_reader(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(1000 * SECOND, 60.0)
    computer.let_pass(2)
    assert clock.now() == computer.clock().now() == 1120 * SECOND
    assert clock.seconds_until(1240 * SECOND) == pytest.approx(2)
    assert clock.seconds_until(1000 * SECOND) == pytest.approx(-2)


def test_there_is_no_time_before_the_start(computer: Computer) -> None:
    assert not computer.clock().started
    with pytest.raises(BrokenProtocol, match="start the market first"):
        computer.clock().now()


def test_after_a_reboot_it_continues_from_the_noted_time(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(0, 10.0)
    computer.let_pass(30)
    clock.note()
    computer.let_pass(4)
    computer.restart()
    clock = computer.clock()
    assert clock.now() == 300 * SECOND
    computer.let_pass(1000)
    assert clock.now() == 300 * SECOND, (
        "how long it was off is unknown, so it stands still until a process looks"
    )
    clock.note()
    computer.let_pass(2)
    assert computer.clock().now() == 320 * SECOND


def test_without_names_of_boots_a_clock_that_fell_back_is_a_restart(computer: Computer) -> None:
    computer.boot = ""
    clock = computer.clock()
    clock.start(0, 1.0)
    computer.let_pass(100)
    clock.note()
    computer.nanos = 10
    assert computer.clock().now() == 100 * SECOND


def test_noting_does_not_move_it_and_writes_at_most_once_a_second(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(0, 3.0)
    computer.let_pass(0.5)
    before = computer.path.read_bytes()
    clock.note()
    assert computer.path.read_bytes() == before
    computer.let_pass(0.7)
    clock.note()
    assert json.loads(computer.path.read_text())["seen"] == clock.now() == 3_600_000


@settings(max_examples=30)
@given(
    st.floats(0.01, 1e5),
    st.lists(st.integers(0, 10**13), max_size=10),
    st.integers(0, 10**16),
    st.integers(0, 9),
)
def test_in_one_boot_it_never_goes_back_and_after_a_restart_not_behind_a_note(
    speed: float, steps: list[int], start: int, restart: int
) -> None:
    with TemporaryDirectory() as folder:
        computer = Computer(Path(folder) / "clock.json")
        clock = computer.clock()
        clock.start(start, speed)
        seen, noted = [clock.now()], clock.now()
        for number, step in enumerate(steps):
            computer.nanos += step
            seen.append(clock.now())
            clock.note()
            noted = max(noted, json.loads(computer.path.read_text())["seen"])
            assert clock.now() - noted <= speed * SECOND
            if number == restart:
                computer.restart()
                assert clock.now() >= noted
                seen.clear()
            seen.append(clock.now())
        assert seen == sorted(seen)


def test_it_stands_for_delays_one_after_the_other(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(0, 60.0)
    computer.let_pass(3)
    clock.delay(2 * 10**9)
    assert clock.now() == 180 * SECOND, (
        "a delay is known when it is over, and time does not go back"
    )
    computer.let_pass(1)
    clock.delay(10**9)
    computer.let_pass(2)
    assert clock.now() == computer.clock().now() == 180 * SECOND
    assert clock.standing.by(computer.nanos) == 3 * 10**9
    computer.let_pass(1)
    assert clock.now() == 240 * SECOND
    assert clock.seconds_until(300 * SECOND) == pytest.approx(1)


def test_seconds_pass_while_it_runs(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(0, 60.0)
    before = clock.seconds()
    computer.let_pass(1)
    clock.delay(10**9)
    computer.let_pass(3)
    assert clock.seconds() - before == pytest.approx(3)


def test_it_stands_at_most_five_minutes_in_an_hour_of_market_time(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(0, 60.0)
    for _ in range(100):
        computer.let_pass(10)
        clock.delay(10 * 10**9)
    first = clock.standing.by(computer.nanos)
    # Of 1,000 seconds it ran for the ten before the first delay, and stood for 300 in each hour
    # that it reached.
    assert clock.now() == (1000 - first / 1e9) * 60 * SECOND
    assert first <= 300 * 10**9 * (clock.now() // (3600 * SECOND) + 1)
    assert first >= 300 * 10**9 * (clock.now() // (3600 * SECOND))


def test_a_market_that_starts_again_has_not_stood(computer: Computer) -> None:
    clock = computer.clock()
    clock.start(0, 60.0)
    computer.let_pass(1)
    clock.delay(10**12)
    clock.start(50, 1.0)
    computer.let_pass(1)
    assert clock.now() == 50 + SECOND
    assert clock.standing.by(computer.nanos) == 0


def test_the_boot_has_one_name() -> None:
    assert boot_id() == boot_id()
