"""A reservation that several jobs of a launch name: each run keeps its part of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spotctl.files.job.reader import restored
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log.store import EventLog
from spotctl.run.start.runs import begin_run
from tests.spotctl.planning.test_reserved import holding_reservations, planned_together, reserved
from tests.spotctl.planning.worlds import spec


def test_a_run_keeps_its_part_of_a_reservation_for_every_later_process(tmp_path: Path) -> None:
    jobs = [
        holding_reservations(replace(spec(name, reliable=0), workdir=tmp_path), reserved(4))
        for name in ("a", "b")
    ]
    plan, _ = planned_together(*jobs)
    settings = Settings(home=tmp_path)
    with EventLog(Paths(tmp_path).log) as log:
        journal, environment = begin_run(plan.job.spec, settings, log, plan=plan)
    assert journal.state.began is not None
    (kept,) = restored(journal.state.began.spec, tmp_path).resources.reservations
    assert (kept.machines, plan.job.spec.resources.reservations[0].machines) == (2, 4)
    assert environment.reservations["cr-0abc"] == kept
