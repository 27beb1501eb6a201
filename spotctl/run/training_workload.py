"""The work of an AgileML job: machines are nodes, notices are warnings, and the end is a model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.attached import AttachedJob, kept
from agileml.errors import AgileMLError
from agileml.iteration_log import last_line_of, line_of
from agileml.job import Counters, Job, Trained
from agileml.join import SECRET_VARIABLE
from agileml.roles.node import JobSettings
from agileml.stopping import Convergence, Stopping
from pricing_data.atomic_write import atomic_write
from pricing_data.errors import PricingDataError
from pricing_data.units import SECOND
from spotctl.files.job import spec as job_file
from spotctl.files.job.spec import JobSpec
from spotctl.files.model_file import check_nothing_lost, save_model
from spotctl.machines.base import Machine, Payload
from spotctl.run.workload import NOTHING_EARLIER, Earlier, Verdict
from spotctl.runlog.events import Progressed, RentIntended
from spotctl.runlog.outcomes import DONE, FAILED
from spotctl.runlog.state import Held, RunState
from spotctl.runlog.timesheet import Timesheet

MODEL_FILE, CHECKPOINT_FILE, LOG_FILE = "model.npz", "checkpoint.npz", "iterations.jsonl"

TELL_EVERY = 1.0
"""Seconds between events about progress; the iteration log has every clock."""

CHECKPOINT_CLOCKS = 10
HEARTBEAT_SECONDS = 5.0
"""Machines share this computer's processors, and start up while others work."""

LISTEN = 0.1
"""Seconds of a turn, in which the controller is heard."""

EXITS = 5
"""So many nodes may end by themselves without a clock finished in between; one more, and it is the job's own fault."""

_SET_UP = '(eval "$1") && shift && exec "$@"'
"""Runs a setup in a shell of its own, and then what follows it in place of this one."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a training's processes meet, where its results go, and where its own files are.

    Nodes get the `environment` and the `secrets`, and run the `setup` before they join.
    """

    meeting: Path
    results: Path
    workdir: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    setup: str = ""


class Training:
    """One training. Its controller lives here and remembers all in `place.meeting`; its nodes live on machines."""

    def __init__(
        self,
        job: Job,
        place: Place,
        secret: bytes,
        speed: float,
        heard: Callable[[Iteration], None],
        earlier: Earlier = NOTHING_EARLIER,
    ) -> None:
        self._job = job
        self._place = place
        self._secret = secret
        self._speed = speed
        self._heard = heard
        self._earlier = earlier
        self._head: AttachedJob | None = None
        self._gone: set[str] = set()
        self._warned: dict[str, int] = {}
        self._exits: list[str] = []
        self._exited_before: set[str] = set()
        self._latest: Progressed | None = None
        self._sheet = Timesheet(speed)
        self._turned = 0, 0.0
        self._told_at = 0.0
        self._seconds = 0.0
        self._share: float | None = None
        self._last_line: Mapping[str, Any] | None = None
        self._unfinished: Mapping[str, Any] | None = None

    def payload(self, order: RentIntended) -> Payload:
        """A node that joins."""
        command = [sys.executable, "-m", "agileml.join", str(self._place.meeting)]
        command += ["--name-in", "SPOTCTL_MACHINE", *(["--reliable"] if order.reliable else [])]
        if self._place.setup:
            command = ["/bin/sh", "-c", _SET_UP, "setup", self._place.setup, *command]
        environment = {**_ONE_THREAD, **self._place.environment}
        return Payload(
            "node", tuple(command), environment, str(self._place.workdir), term_at_notice=False, grace_seconds=0.0
        )

    def secrets(self) -> Mapping[str, str]:
        """By which nodes and controller know each other, and those that the job names."""
        return {**self._place.secrets, SECRET_VARIABLE: self._secret.hex()}

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> Verdict:
        """Tells the controller what happened to machines, and hears it for a moment."""
        if state.stopping is not None:
            self._keep_unfinished()
            return Verdict()
        self._turned = now, time.monotonic()
        try:
            useless = self._go_on(state, machines, now)
            if self._last_line is not None:
                return self._done(self._last_line)
        except (AgileMLError, PricingDataError) as error:
            return Verdict(self._latest, FAILED, str(error))
        except OSError as error:
            return Verdict(self._latest, FAILED, f"{error.filename or self._place.results}: {error.strerror or error}")
        if len(self._exits) > EXITS:
            return Verdict(outcome=FAILED, message=f"{len(self._exits)} nodes ended by themselves: {self._exits[-1]}")
        return Verdict(self._news(), useless=useless, share=self._share)

    def facts(self) -> Mapping[str, Any]:
        """How the training ended, and where the model lies, or the newest checkpoint of one that was ended early."""
        if self._last_line is None:
            return self._unfinished or {}
        # Which machines were taken is known to the run; the engine counts those that it noticed.
        told = {name: value for name, value in self._last_line.items() if name not in ("evictions", "failures")}
        return {**told, "model": str(self._place.results / MODEL_FILE)}

    def close(self) -> None:
        """Ends the controller."""
        if self._head is not None:
            self._head.close()

    def _go_on(self, state: RunState, machines: Sequence[Machine], now: int) -> tuple[str, ...]:
        """Until the training is over; returns machines that do nothing any more."""
        if self._head is None:
            done, self._last_line = self._so_far(state)
            if self._last_line is not None:
                return ()
            last = max(done, 0 if state.progress is None else state.progress.clock, self._earlier.clock)
            self._head = AttachedJob(self._job, self._place.meeting, self._secret, self._note, last)
            for machine in self._earlier.machines:
                self._head.lose(machine)
            # Who ended while nobody was here may have been told to; nobody else heard why.
            self._exited_before = {machine.id for machine in machines if machine.exit_code is not None}
        useless = self._tell(self._head, state, machines, now)
        self._listen(self._head)
        return useless

    def _so_far(self, state: RunState) -> tuple[int, Mapping[str, Any] | None]:
        """The last clock that an earlier process of the run logged, and the last line if the training was over."""
        self._place.results.mkdir(parents=True, exist_ok=True)
        path = self._place.results / LOG_FILE
        if not state.orders:
            # An earlier run of the job left it there.
            path.unlink(missing_ok=True)
        lines = _lines_of(path)
        self._seconds = sum(line.get("seconds", 0.0) for line in lines)
        last = lines[-1] if lines and "model_sha256" in lines[-1] else None
        return max((line.get("clock", 0) for line in lines), default=0), last

    # -- what the controller is told ----------------------------------------------------------------------------------

    def _tell(self, head: AttachedJob, state: RunState, machines: Sequence[Machine], now: int) -> tuple[str, ...]:
        """Who is warned and who is gone; returns machines whose node has ended by itself."""
        for held in state.machines.values():
            deadline = self._deadline(state, held)
            if not held.alive:
                self._lose(head, held.id)
            elif deadline is not None and held.id not in self._gone and self._warned.get(held.id) != deadline:
                self._warned[held.id] = deadline
                head.warn(held.id, max(deadline - now, 0) / SECOND / self._speed)
        ended = [machine for machine in machines if machine.exit_code is not None and machine.id in state.machines]
        return tuple(machine.id for machine in ended if self._has_ended(head, state, machine))

    def _deadline(self, state: RunState, held: Held) -> int | None:
        """When a machine goes, as far as is known: taken away, or given back as planned."""
        leaves = state.allocations[held.allocation].leaves_at
        return min((at for at in (held.warned_until, leaves) if at is not None), default=None)

    def _has_ended(self, head: AttachedJob, state: RunState, machine: Machine) -> bool:
        """Whether a machine's node has ended though nobody takes the machine away."""
        if machine.id in self._gone or not state.machines[machine.id].alive:
            return False
        self._lose(head, machine.id)
        if machine.id in self._warned:
            return False
        if machine.id not in self._exited_before:
            self._exits.append(f"{machine.id} with status {machine.exit_code}; spotctl logs shows what it said")
        return True

    def _lose(self, head: AttachedJob, name: str) -> None:
        if name not in self._gone:
            self._gone.add(name)
            head.lose(name)

    # -- what it says -------------------------------------------------------------------------------------------------

    def _listen(self, head: AttachedJob) -> None:
        until = time.monotonic() + LISTEN
        while self._last_line is None and (left := until - time.monotonic()) > 0:
            trained = head.turn(left)
            self._last_line = None if trained is None else self._keep(trained)

    def _note(self, iteration: Iteration) -> None:
        self._exits.clear()
        now, since = self._turned
        at = now + round((time.monotonic() - since) * self._speed * SECOND)
        self._latest = self._sheet.progressed(iteration, at, self._latest)
        _append(self._place.results / LOG_FILE, line_of(iteration))
        self._seconds += iteration.seconds
        self._share = self._share_after(iteration.clock)
        self._heard(iteration)

    def _share_after(self, clock: int) -> float | None:
        """How much of the work is done; nobody knows where the loss decides."""
        stop = self._job.stopping
        if stop.loss is not None or stop.converged is not None:
            return None
        shares = [] if stop.clocks is None else [clock / stop.clocks]
        shares += [] if stop.seconds is None else [self._seconds / stop.seconds]
        return min(max(shares), 1.0)

    def _news(self) -> Progressed | None:
        """The latest clock, if it is time to write one down."""
        latest, now = self._latest, time.monotonic()
        if latest is None or now - self._told_at < TELL_EVERY:
            return None
        self._latest, self._told_at = None, now
        return latest

    def _keep(self, trained: Trained) -> Mapping[str, Any]:
        """Writes down how the training ended: the model first, so that the line says that it is there."""
        save_model(trained.model, self._place.results / MODEL_FILE)
        line = last_line_of(trained)
        _append(self._place.results / LOG_FILE, line)
        return line

    def _keep_unfinished(self) -> None:
        """The newest checkpoint of a training that is ended early, before what it lies on is given back."""
        if self._last_line is not None or self._unfinished is not None:
            return
        path = self._place.results / CHECKPOINT_FILE
        try:
            found = kept(self._job, self._place.meeting)
            if found is not None:
                self._place.results.mkdir(parents=True, exist_ok=True)
                save_model(found[1], path)
            self._unfinished = {} if found is None else {"checkpoint": str(path), "checkpoint_clock": found[0]}
        except (AgileMLError, PricingDataError, OSError) as error:
            # Everything is given back all the same.
            self._unfinished = {"checkpoint": None, "checkpoint_error": str(error)}

    def _done(self, line: Mapping[str, Any]) -> Verdict:
        counted = (line[f"updates_{what}"] for what in ("sent", "applied", "lost", "doubled"))
        try:
            check_nothing_lost(Counters(*counted))
        except AgileMLError as error:
            return Verdict(self._latest, FAILED, str(error))
        return Verdict(self._latest, DONE, f"{line['clocks']} clocks")


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def _lines_of(path: Path) -> list[dict[str, Any]]:
    """The iteration log as an earlier process left it, without a line that it died over."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    with atomic_write(path) as part:
        part.write_text("".join(whole), encoding="utf-8")
    return [json.loads(line) for line in whole]


def _app_of(spec: JobSpec, program: job_file.Training) -> str:
    """A file is named from the job's folder, wherever the job is launched."""
    return str(spec.workdir / program.app) if program.app.endswith(".py") else program.app


def training_job(spec: JobSpec, program: job_file.Training) -> Job:
    """The job as the engine is given it: it begins with the reliable machines, and takes in whoever comes."""
    stop = program.stop
    # On the local market a job's times are the market's, as its prices and its deadline are.
    second = SECOND * (spec.local.speed if spec.is_local else 1.0)
    return Job(
        TrainerSource(_app_of(spec, program), program.args),
        spec.resources.reliable.machines,
        0,
        Stopping(
            stop.clocks,
            None if stop.span is None else stop.span / second,
            stop.loss,
            None if stop.converged is None else Convergence(stop.converged),
        ),
        JobSettings(deterministic=True),
        heartbeat_timeout=HEARTBEAT_SECONDS,
        checkpoint_every=CHECKPOINT_CLOCKS,
    )
