"""Stages of boots, how long a kind of machine may show nothing new, and what a launch prints of
it."""

from __future__ import annotations

from itertools import pairwise

from pricing_data.market import Market
from pricing_data.units import MINUTE, SECOND
from spotctl.clouds.link import LeaseTimes
from spotctl.log import events as ev
from spotctl.log.boots import boot_of, silent
from spotctl.log.folding import fold
from spotctl.log.state import LogRow, RunState
from spotctl.show.runs.lines import happened

MARKET = Market.parse("aws/us-east-1/us-east-1a/c5.large")
TEARDOWN = LeaseTimes().teardown
IDS = ("m-1", "m-2")


def run(*rows: tuple[float, ev.Event]) -> list[RunState]:
    """The states of a run after each of these events, with the seconds since its order."""
    order = ev.RentIntended(1, MARKET, 2, None, 10**8, 4.0, False, 15 * MINUTE)
    begun: list[tuple[float, ev.Event]] = [
        (0.0, ev.RunBegan("job", "aws", {}, "", 0)),
        (0.0, order),
        (2.0, ev.Rented(1, tuple(ev.Granted(name, 0) for name in IDS))),
    ]
    states = [RunState()]
    for number, (at, event) in enumerate((*begun, *rows), 1):
        row = LogRow(number, "job-1", round(at * SECOND), event)
        states.append(fold([row], states[-1]))
    return states[len(begun) :]


def test_a_line_for_each_stage_that_the_last_machine_has_reached() -> None:
    states = run(
        (10, ev.BootAdvanced("m-1", "running")),
        (12, ev.BootAdvanced("m-2", "running")),
        (30, ev.BootAdvanced("m-2", "console", "a")),
        (60, ev.BootAdvanced("m-2", "console", "b")),
        (61, ev.BootAdvanced("m-1", "ssh")),
        (70, ev.BootAdvanced("m-2", "ssh")),
        (80, ev.MachineRan("m-1")),
        (90, ev.MachineRan("m-2")),
    )
    lines = [line for before, now in pairwise(states) for line in happened(before, now)]
    assert [line.partition(":")[0] for line in lines] == [
        "running after 12 s",
        "console after 61 s",
        "ssh after 70 s",
        "packages, agent after 90 s",
    ]


def test_a_machine_is_silent_after_its_time_without_a_sign_however_far_it_has_come() -> None:
    state = run(
        (60, ev.BootAdvanced("m-1", "console", "a")), (100, ev.BootAdvanced("m-1", "console", "b"))
    )[-1]
    (first, second) = (boot_of(state, state.machines[name]) for name in IDS)
    assert first is not None
    assert second is not None
    assert (first.due, second.due) == (100 * SECOND + 4 * MINUTE, 2 * SECOND + 4 * MINUTE)
    assert [held.id for held, _ in silent(state, TEARDOWN, 5 * MINUTE, 0)] == ["m-2"]
    assert list(silent(state, TEARDOWN, 6 * MINUTE, 3 * MINUTE)) == [], (
        "signs would not have been seen"
    )


def test_copying_may_take_longer_than_a_boot() -> None:
    copies: list[tuple[float, ev.Event]] = [
        (60.0 * minute, ev.BootAdvanced("m-1", "packages", str(minute))) for minute in range(1, 30)
    ]
    renewed: list[tuple[float, ev.Event]] = [
        (600.0, ev.RenewIntended(2, IDS, 40 * MINUTE)),
        (601.0, ev.Renewed(2)),
    ]
    state = run(*copies[:9], *renewed, *copies[10:])[-1]
    assert "m-1" not in [held.id for held, _ in silent(state, TEARDOWN, 30 * MINUTE, 0)]


def test_a_silent_machine_is_said_once_and_counts_at_once() -> None:
    before, now = run((300, ev.BootSilent("m-1", "it has shown nothing new for 4 minutes")))
    assert happened(before, now) == ["returning m-1: it has shown nothing new for 4 minutes"]
    assert (before.useless(0), now.useless(0)) == (0, 1)
    assert (MARKET, True) in now.back_offs
