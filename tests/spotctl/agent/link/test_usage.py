"""How busy graphics cards are: from a program in the place of nvidia-smi, through an agent and its
link, to the log.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import HOUR
from spotctl.agent.link import usage
from spotctl.agent.link.usage import COUNTERS, GpuUse, GpuWatch, Traffic, parsed, traffic
from spotctl.log import events as ev
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.show.costs.answers import as_csv, as_json
from spotctl.show.costs.cost import Report
from spotctl.show.costs.page import html
from spotctl.show.costs.periods import Period
from spotctl.show.costs.tables import plain_text
from tests.spotctl.agent.agents import Agent
from tests.spotctl.clouds.test_link import to
from tests.spotctl.show.costs.made import NIGHT, night, report_of
from tests.spotctl.show.runs.made_up_run import rows, run_events
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
    does(tool, f'[ "$*" = "{" ".join(usage._QUERY)}" ] || exit 2; {TWO_CARDS}')
    agent = Agent(tmp_path)
    try:
        link = to(agent)
        eventually(lambda: link.status().gpus == GpuUse(87, 61))
    finally:
        agent.close()


def test_a_tool_that_hangs_holds_nothing_up(
    tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "EVERY_SECONDS", 0.0)
    watch = GpuWatch(tmp_path)
    does(tool, TWO_CARDS)
    eventually(watch.use)
    hangs = tmp_path / "hangs"
    does(tool, f"touch {hangs}; exec sleep 1000")
    eventually(lambda: watch.use() and hangs.exists())
    monkeypatch.setattr(usage, "LONGEST_SECONDS", 0.0)
    assert watch.use() is None
    does(tool, TWO_CARDS)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(usage, "EVERY_SECONDS", 0.0)
    eventually(lambda: watch.use() == GpuUse(87, 61))
    does(tool, "echo 'NVIDIA-SMI has failed'; exit 9")
    eventually(lambda: watch.use() is None)
    monkeypatch.setattr(usage, "EVERY_SECONDS", 1e9)
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
def test_the_agent_of_a_machine_of_its_own_says_its_traffic(
    tmp_path: Path, *, counts: bool
) -> None:
    agent = Agent(tmp_path, counts_traffic=counts)
    try:
        assert (to(agent).status().traffic is not None) is counts
    finally:
        agent.close()


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
    moved = [
        (one["sent_bytes"], one["received_bytes"], one["traffic_runs"])
        for one in as_json(after)["groups"]
    ]
    assert moved == [(1_200_000_000, 30 * GB, 1), (None, None, 0)]
    assert ",1200000000,30000000000,1," in as_csv(after)
    cut = as_json(report_of(runs, period=Period(since=NIGHT + 2 * HOUR)))
    assert (cut["sent_bytes"], cut["traffic_runs"]) == (None, 0)


def flat(report: Report) -> str:
    return " ".join(plain_text(report).split())
