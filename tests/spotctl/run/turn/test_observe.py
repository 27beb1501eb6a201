"""What the log gets of a machine's counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import MINUTE, SECOND
from spotctl.agent.link.usage import GpuUse, Traffic
from spotctl.clouds.provider import Machine, MachineState
from spotctl.log import event_json, events as ev
from spotctl.log.budget import sent_amount
from spotctl.log.folding import fold
from spotctl.run.turn.observe import news
from tests.spotctl.agent.link.test_usage import GB
from tests.spotctl.show.runs.made_up_run import WILD, at, granted, order, rows

GIB = 2**30


def test_the_log_gets_noticeable_changes_once_a_minute() -> None:
    logged: list[tuple[float, ev.Event]] = [
        (0, order(1, WILD, 60_000_000, 1)),
        (0, granted(1, 0, "m")),
    ]
    logged.append((0, ev.MachineRan("m")))
    machine = Machine("m", WILD, 60_000_000, MachineState.RUNNING, at(0), {})

    def seen(seconds: int, gpus: GpuUse | None) -> list[ev.Event]:
        listed = [replace(machine, gpus=gpus)]
        found = news(fold(rows(logged)), listed, at(0) + seconds * SECOND, "fake")
        logged.extend(
            (
                seconds * SECOND / MINUTE,
                event_json.from_json(type(one).__name__, event_json.to_json(one)),
            )
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


def test_the_log_gets_counts_that_have_grown_noticeably() -> None:
    logged: list[tuple[float, ev.Event]] = [
        (0, order(1, WILD, 60_000_000, 1)),
        (0, granted(1, 0, "m")),
    ]
    logged.append((0, ev.MachineRan("m")))
    machine = Machine("m", WILD, 60_000_000, MachineState.RUNNING, at(0), {})

    def seen(seconds: int, moved: Traffic | None) -> list[ev.Event]:
        found = news(
            fold(rows(logged)), [replace(machine, traffic=moved)], at(0) + seconds * SECOND, "fake"
        )
        logged.extend(
            (
                seconds * SECOND / MINUTE,
                event_json.from_json(type(one).__name__, event_json.to_json(one)),
            )
            for one in found
        )
        return found

    assert seen(1, None) == []
    assert seen(2, Traffic(GB, GB)) == [ev.TrafficCounted("m", GB, GB)]
    assert seen(61, Traffic(9 * GB, GB)) == [], "within a minute"
    assert seen(62, Traffic(GB, GB + GB // 100)) == [], "a small part"
    assert seen(63, Traffic(GB, 2 * GB)) == [ev.TrafficCounted("m", GB, 2 * GB)]
    assert seen(200, None) == []


def test_bytes_that_a_host_bills_are_paid_at_its_prices() -> None:
    """They are in the budget and in the ledger, each direction at its price."""
    logged: list[tuple[float, ev.Event]] = [
        (0, order(1, WILD, 60_000_000, 1)),
        (0, granted(1, 0, "m")),
    ]
    logged.append((0, ev.MachineRan("m")))
    machine = Machine("m", WILD, 60_000_000, MachineState.RUNNING, at(0), {})
    billing = replace(machine, traffic_prices=(3_000_000, 20_000_000))
    state = fold(rows(logged))
    moved = Traffic(4 * GIB, GIB)
    (counted, sent) = news(state, [replace(billing, traffic=moved)], at(0) + 90 * SECOND, "fake")
    assert counted == ev.TrafficCounted("m", 4 * GIB, GIB)
    assert isinstance(sent, ev.Sent)
    assert sent_amount(sent) / 3600 == pytest.approx(4 * 3_000_000 + 20_000_000, abs=10)
    # Only what came since is paid later.
    logged += [(1.5, counted), (1.5, sent)]
    later = replace(billing, traffic=Traffic(4 * GIB, 2 * GIB))
    *_, more = news(fold(rows(logged)), [later], at(0) + 200 * SECOND, "fake")
    assert isinstance(more, ev.Sent)
    assert (more.bytes, more.price) == (GIB, 20_000_000)
    free = news(state, [replace(machine, traffic=moved)], at(0) + 90 * SECOND, "fake")
    assert free == [counted]
