"""What a run has cost and done at its end."""

from __future__ import annotations

import json
from pathlib import Path

from pricing_data.units import HOUR
from spotctl.files.job.reader import loads, written
from spotctl.log import events as ev
from spotctl.log.ledger.final_cost import timeline_of
from tests.spotctl.show.costs.made import (
    AWS,
    NIGHT,
    RELIABLE,
    MadeRun,
)

TRAINING = """\
name: a
kind: agileml
app: mf
stop: {clocks: 10}
resources: {clouds: [local], machines: 2..2}
"""


def test_timeline_of_a_run() -> None:
    """What the events tell besides money."""
    made = MadeRun("a-1", "a", NIGHT)
    made.begin(budget="25 USD")
    made.plan(4.0, 5.0)
    made.rent(RELIABLE, 1, NIGHT, spot=False, reliable=True)
    first = made.rent(AWS[0], 2, NIGHT + HOUR)
    made.end_machines(first, NIGHT + 2 * HOUR, "evicted", warned=True)
    second = made.rent(AWS[1], 8, NIGHT + 3 * HOUR)
    for name in second[:3]:
        # Events are often logged later than they happened.
        made.add(NIGHT + 5 * HOUR, ev.MachineEnded(name, NIGHT + 4 * HOUR, "evicted"))
    found = timeline_of(made.log())
    assert found.is_running
    assert (found.outcome, found.work) == (None, 3 * 60 + 5)
    assert [(one.at - NIGHT, one.warned) for one in found.evictions] == [
        *[(2 * HOUR, True)] * 2,
        *[(4 * HOUR, False)] * 3,
    ]
    assert [((one.at - NIGHT) // HOUR, one.reliable, one.spot) for one in found.mixes] == [
        (0, 1, 0),
        (1, 1, 2),
        (2, 1, 0),
        (3, 1, 8),
        (4, 1, 5),
    ]
    assert [number for _, number in found.stages] == [1, 2]
    assert found.expected.budget_usd == 25.0
    assert (found.expected.usd, found.expected.usd_low, found.expected.hours) == (4.0, 3.2, 5.0)
    made.finish(NIGHT + 6 * HOUR, clocks=400)
    ended = timeline_of(made.log())
    assert (ended.outcome, ended.work, ended.wall_ended) == ("done", 400, NIGHT + 6 * HOUR)


def test_a_command_has_no_stages() -> None:
    made = MadeRun("a-1", "a", NIGHT)
    made.begin()
    made.add(NIGHT + HOUR, ev.Progressed(1, None, 0))
    assert not timeline_of(made.log()).stages


def test_work_of_a_run_without_progress() -> None:
    for kind, work in (("command", None), ("agileml", 0)):
        made = MadeRun("a-1", "a", NIGHT)
        made.begin(kind=kind)
        assert timeline_of(made.log()).work == work


def test_tags_of_the_job_file_are_in_the_timeline(tmp_path: Path) -> None:
    spec = loads(TRAINING + "tags: {team: search}\n", tmp_path / "job.yaml")
    assert loads(json.dumps(written(spec)), tmp_path / "job.yaml").tags == {"team": "search"}
    made = MadeRun("a-1", "a", NIGHT)
    made.add(NIGHT, ev.RunBegan("a", "local", written(spec), "", NIGHT))
    assert timeline_of(made.log()).tags == {"team": "search"}
