"""A job that has lost its launcher while it waited begins when the jobs before it have ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import pytest

from bidbrain.queue.values import QueueJob, QueueQuota
from pricing_data.units import HOUR
from spotctl.clouds.wiring import local_provider
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.events import Granted, Rented, RentIntended, RunBegan, RunEnded
from spotctl.log.jobs import (
    JobLock,
    WaitingJob,
    add_waiting,
    is_waiting,
    left_behind,
    remove_waiting,
    waiting_jobs,
)
from spotctl.log.queue import JobJoined
from spotctl.log.store import EventLog
from spotctl.run.following import RunEnd, RunObserver
from spotctl.run.start import concurrent_runs, runs
from spotctl.run.start.concurrent_runs import begin_late
from spotctl.run.start.live_markets import begin_market
from spotctl.run.start.shared_queue import SharedQueue, queue_of
from tests.spotctl.run.worlds import MARKETS
from tests.waiting import eventually

JOB = """\
name: {}
kind: command
run: 'true'
hours: 20m
resources: {{clouds: [local]}}
"""


@dataclass
class Late:
    """Job `jobb`, which waits for `joba`, and what its process says and does."""

    settings: Settings
    begun: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    stopped: Event = field(default_factory=Event)

    @property
    def paths(self) -> Paths:
        return Paths(self.settings.home)

    @property
    def now(self) -> int:
        return local_provider(self.settings, self.spec).now()

    @property
    def spec(self) -> JobSpec:
        return load(self.settings.home.parent / "jobb.yaml")

    @property
    def queue(self) -> SharedQueue:
        return queue_of(self.spec, self.settings)

    def joins(self, *names: str) -> None:
        """Puts jobs into the queue that each need the whole quota; the first is the shortest."""
        begin_market(self.spec, self.settings)
        kind = "local/sim-east/c4.xlarge"
        quota = QueueQuota("local/sim-east/c4", 4.0, {kind: 4.0})
        jobs = [
            QueueJob(name, {kind: 1.0}, 0.0, 0.0, work=1.0 + number)
            for number, name in enumerate(names)
        ]
        self.queue.join([JobJoined(replace(job, interruptible=False), (quota,)) for job in jobs])

    def begins(self) -> RunEnd | None:
        (job,) = waiting_jobs(self.paths)
        observer = RunObserver(
            on_remark=lambda _, line: self.lines.append(line), is_stopped=self.stopped.is_set
        )
        return begin_late(job, self.settings, observer)


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Late:
    made, file = Late(Settings(home=tmp_path / "home")), tmp_path / "jobb.yaml"
    made.settings.home.mkdir()
    file.write_text(JOB.format("jobb"))
    add_waiting(made.paths, WaitingJob("jobb", ("joba",), None, str(file)))

    def launched(spec: JobSpec, _settings: Settings, _observer: RunObserver) -> None:
        assert not is_waiting(made.paths, spec.name)
        made.begun.append(spec.name)

    monkeypatch.setattr(runs, "launch_locked", launched)
    monkeypatch.setattr(concurrent_runs, "_LOOK_SECONDS", 0.01)
    return made


def while_it_waits(late: Late, happens: Callable[[], object]) -> None:
    """Something happens once the job has said for what it waits; then its process ends."""
    with ThreadPoolExecutor() as pool:
        process: Future[RunEnd | None] = pool.submit(late.begins)
        eventually(lambda: late.lines or process.done())
        assert not process.done(), process.result()
        assert not late.begun
        happens()
        process.result()


def test_it_begins_at_once_if_nothing_is_before_it(late: Late) -> None:
    late.begins()
    assert (late.begun, late.lines) == (["jobb"], [])


def test_it_waits_for_a_run_that_a_process_attends_to(late: Late) -> None:
    late.joins("joba", "jobb")
    lock = JobLock(late.paths.locks, "joba")
    while_it_waits(late, lambda: lock.__exit__(None, None, None))
    assert (late.begun, late.lines) == (["jobb"], ["waits for joba"])


def test_it_waits_for_the_machines_of_a_run_that_was_interrupted(late: Late) -> None:
    late.joins("joba", "jobb")
    with EventLog(late.paths.log) as log:
        began, lease = RunBegan("joba", "local", {}, "", 0), late.now + HOUR
        log.append("joba-1", late.now, began)
        log.append("joba-1", late.now, RentIntended(1, MARKETS[0], 1, 1, 1, 4.0, False, lease))
        log.append("joba-1", late.now, Rented(1, (Granted("m", late.now),)))
        with JobLock(late.paths.locks, "joba"):
            assert late.queue.parts("joba") is not None
        while_it_waits(late, lambda: log.append("joba-1", late.now, RunEnded("done", "", 1)))
    assert late.begun == ["jobb"]
    assert late.lines == [
        "waits for joba, which no process attends to: its machines end with their leases ('spotctl "
        "resume joba' continues it, 'spotctl stop joba' ends it)"
    ]


@pytest.mark.parametrize("by_stop", [True, False])
def test_it_is_withdrawn_by_a_stop_and_by_the_end_of_its_process(late: Late, by_stop: bool) -> None:
    late.joins("joba", "jobb")
    with JobLock(late.paths.locks, "joba"):
        while_it_waits(
            late, lambda: remove_waiting(late.paths, "jobb") if by_stop else late.stopped.set()
        )
    assert late.begun == []
    assert late.lines[-1] == "withdrawn before it began; nothing was rented"
    assert not is_waiting(late.paths, "jobb")


def test_a_file_that_describes_another_job_now_is_refused(late: Late) -> None:
    (job,) = waiting_jobs(late.paths)
    Path(job.file).write_text(JOB.format("jobc"))
    with pytest.raises(BadRequest, match="now describes job jobc, not jobb"):
        late.begins()
    assert is_waiting(late.paths, "jobb")


def test_only_a_job_without_a_launcher_is_left_behind(late: Late) -> None:
    assert left_behind(late.paths, "joba") is None
    left = left_behind(late.paths, "jobb")
    assert left is not None
    assert left.name == "jobb"
    with JobLock(late.paths.locks, "jobb"), pytest.raises(BadRequest, match="has not begun"):
        left_behind(late.paths, "jobb")
