"""What machines have received and sent: from the kernel's counters, through an agent, to the log and the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.agent.traffic import COUNTERS, Traffic, traffic
from spotctl.clouds.base import Machine, MachineState
from spotctl.log import event_json, events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.run.turn.observe import news
from spotctl.show.costs.answers import as_csv, as_json
from spotctl.show.costs.cost import Report
from spotctl.show.costs.page import html
from spotctl.show.costs.periods import Period
from spotctl.show.costs.tables import plain_text
from tests.spotctl.agent.agents import Agent
from tests.spotctl.clouds.test_link import to
from tests.spotctl.show.costs.made import NIGHT, night, report_of
from tests.spotctl.show.runs.made_up_run import WILD, at, granted, order, rows, run_events

TABLE = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 9000       10    0    0    0     0          0         0     9000      10    0    0    0     0       0          0
  ens5: 700        9    0    0    0     0          0         0       50       8    0    0    0     0       0          0
  ens6:1000        9    0    0    0     0          0         0        5       8    0    0    0     0       0          0
docker0: 640       9    0    0    0     0          0         0       70       8    0    0    0     0       0          0
"""
GB = 10**9


def test_interfaces_to_the_outside_are_added_up(tmp_path: Path) -> None:
    counters = tmp_path / "dev"
    counters.write_text(TABLE)
    assert traffic(counters) == Traffic(1700, 55)


@pytest.mark.parametrize("content", [None, "eth0: 1 2 3\n", "eth0: many\n"])
def test_counters_that_cannot_be_read_are_no_error(tmp_path: Path, content: str | None) -> None:
    counters = tmp_path / "dev"
    if content is not None:
        counters.write_text(content)
    assert traffic(counters) is None


@pytest.mark.skipif(not COUNTERS.exists(), reason="the kernel has no such counters")
@pytest.mark.parametrize("counts", [True, False])
def test_the_agent_of_a_machine_of_its_own_says_its_traffic(tmp_path: Path, *, counts: bool) -> None:
    agent = Agent(tmp_path, counts_traffic=counts)
    try:
        assert (to(agent).status().traffic is not None) is counts
    finally:
        agent.close()


def test_the_log_gets_counts_that_have_grown_noticeably() -> None:
    logged: list[tuple[float, ev.Event]] = [(0, order(1, WILD, 60_000_000, 1)), (0, granted(1, 0, "m"))]
    logged.append((0, ev.MachineRan("m")))
    machine = Machine("m", WILD, 60_000_000, MachineState.RUNNING, at(0), {})

    def seen(seconds: int, moved: Traffic | None) -> list[ev.Event]:
        found = news(fold(rows(logged)), [replace(machine, traffic=moved)], at(0) + seconds * SECOND, "fake")
        logged.extend(
            (seconds * SECOND / MINUTE, event_json.from_json(type(one).__name__, event_json.to_json(one)))
            for one in found
        )
        return found

    assert seen(1, None) == []
    assert seen(2, Traffic(GB, GB)) == [ev.TrafficCounted("m", GB, GB)]
    assert seen(61, Traffic(9 * GB, GB)) == [], "within a minute"
    assert seen(62, Traffic(GB, GB + GB // 100)) == [], "a small part"
    assert seen(63, Traffic(GB, 2 * GB)) == [ev.TrafficCounted("m", GB, 2 * GB)]
    assert seen(200, None) == []


def test_a_run_has_the_sum_of_its_machines() -> None:
    before = timeline_of(rows(run_events()))
    assert (before.received, before.sent) == (None, None)
    counted = [
        (9.0, ev.TrafficCounted("r", 5, 1)),
        (9.5, ev.TrafficCounted("e", 7, 2)),
        (10.0, ev.TrafficCounted("r", 9, 3)),
    ]
    after = timeline_of(rows([*run_events(), *counted]))
    assert (after.received, after.sent) == (16, 5)


def test_reports_say_what_was_counted() -> None:
    runs = [night(i, np.random.default_rng(5), job) for i, job in ((0, "nightly"), (1, "weekly"))]
    before = report_of(runs)
    assert "what else machines send is not measured" in flat(before)
    assert (as_json(before)["sent_bytes"], as_json(before)["traffic_runs"]) == (None, 0)
    runs[0].add(NIGHT + HOUR, ev.TrafficCounted(f"i-{runs[0].run}-000", 30 * GB, 1_200_000_000))
    after = report_of(runs)
    assert "machines sent 1.2 GB and received 30.0 GB, counted in 1 of 2 runs" in flat(after)
    assert "30.0 GB received, counted in 1 of 2 runs" in html(after)
    moved = [(one["sent_bytes"], one["received_bytes"], one["traffic_runs"]) for one in as_json(after)["groups"]]
    assert moved == [(1_200_000_000, 30 * GB, 1), (None, None, 0)]
    assert ",1200000000,30000000000,1," in as_csv(after)
    cut = as_json(report_of(runs, period=Period(since=NIGHT + 2 * HOUR)))
    assert (cut["sent_bytes"], cut["traffic_runs"]) == (None, 0)


def flat(report: Report) -> str:
    return " ".join(plain_text(report).split())
