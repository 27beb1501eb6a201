"""Stages of boots, how long a kind of machine may show nothing new, and what a launch prints of
it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from pricing_data.market import Market
from pricing_data.units import MINUTE, SECOND
from spotctl.clouds.boot import STATED, first_lease, stated_time
from spotctl.clouds.link import LeaseTimes
from spotctl.log import events as ev
from spotctl.log.boots import boot_of, silent
from spotctl.log.folding import after
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
        states.append(after(states[-1], LogRow(number, "job-1", round(at * SECOND), event)))
    return states[len(begun) :]


@pytest.mark.parametrize(
    ("market", "minutes"),
    [
        ("aws/us-east-1/us-east-1a/c5.large", 4),
        ("aws/us-east-1/us-east-1a/m4.large", 10),
        ("aws/us-east-1/us-east-1a/p5.48xlarge", 8),
        ("aws/us-east-1/us-east-1a/c5.metal", 20),
        ("gcp/us-central1/us-central1-b/n2-standard-4", 4),
        ("gcp/us-central1/us-central1-b/n1-standard-8+1-nvidia-tesla-t4", 8),
        ("gcp/us-central1/us-central1-b/c3-standard-192-metal", 20),
        ("azure/eastus/-/Standard_D4s_v5", 4),
        ("azure/eastus/-/Standard_ND96isr_H100_v5", 8),
        ("local/sim-east/a/c4.xlarge", None),
    ],
)
def test_each_kind_of_machine_has_its_time(market: str, minutes: int | None) -> None:
    assert stated_time(Market.parse(market)) == (None if minutes is None else minutes * MINUTE)


def test_the_page_on_evidence_has_each_time_with_its_source() -> None:
    page = (Path(__file__).parents[3] / "docs" / "proof.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (?:none|\[AWS\]\((.+?)\).*) \|$", page, re.MULTILINE)
    assert rows == [(kind, str(time // MINUTE), source) for kind, (time, source) in STATED.items()]


@pytest.mark.parametrize("type_", ["c5.large", "p5.48xlarge", "c5.metal"])
def test_the_first_lease_outlasts_a_boot_of_three_times_the_stated_time(type_: str) -> None:
    market = Market.parse(f"aws/us-east-1/us-east-1a/{type_}")
    assert first_lease(market, LeaseTimes()) >= max(
        3 * (stated_time(market) or 0), LeaseTimes().lease
    )


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
