"""A run that trains on a Ray cluster: no machine is rented, and the cluster is paid for elsewhere.

The training is a process of its own, `python -m spotctl.run.start.ray_training RESULTS STATE`,
whose iteration log is followed here: Ray changes the process that it runs in, and a job must not
change the one that launches it. The job is read from the folder RESULTS, and not from the
arguments, which all users of a computer can see. The iteration log and the model go there too, and
to STATE what another process needs to continue the training. SIGINT ends the training and its
nodes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agileml.engines.attached import is_unfinished
from spotctl.agent.container.processes import exit_code_of, signal_group, start_group
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import SpotctlError
from spotctl.log import events as ev
from spotctl.log.outcomes import DONE, FAILED
from spotctl.run.machine_output import CLUSTER
from spotctl.run.work import resume_state
from spotctl.run.work.training_workload import LOG_FILE, MODEL_FILE, REPORT_EVERY

if TYPE_CHECKING:
    from agileml.job import TrainingJob
    from agileml.runtime.prepared_job import RunnableJob
    from spotctl.run.environment import RunEnvironment
    from spotctl.run.turn.execute import Journal

JOB_FILE = "job.json"
HEAD_LOST = 3
"""The exit code of a training that can go on once there is a cluster again."""

_STATE = "job"
"""The folder of the training's state, in that of the run."""
_TURN_SECONDS = 0.2
_END_SECONDS = 30.0
"""How long nodes, and a cluster that was started for the run, may take to end."""


class RayTraining:
    """The training's process. In a resumed run, the training goes on from the newest checkpoint."""

    def __init__(
        self, spec: JobSpec, environment: RunEnvironment, content: Mapping[str, Any]
    ) -> None:
        self._job = spec.name
        self._environment = environment
        self._results = environment.results
        self._results.mkdir(parents=True, exist_ok=True)
        resume_state.make_rendezvous(environment.rendezvous)
        state = environment.rendezvous / _STATE

        if not is_unfinished(state):
            # The files of an earlier run of the job.
            for name in (LOG_FILE, MODEL_FILE):
                (self._results / name).unlink(missing_ok=True)

        (self._results / JOB_FILE).write_text(json.dumps(content))
        command = [
            sys.executable,
            "-m",
            "spotctl.run.start.ray_training",
            str(self._results),
            str(state),
        ]
        assert environment.output is not None
        environment.output.mkdir(parents=True, exist_ok=True)
        self._output = environment.output / CLUSTER

        with self._output.open("wb") as output:
            self._process = start_group(
                command, spec.workdir, os.environ, output, subprocess.STDOUT
            )

        self._read = 0
        self._latest: ev.Progressed | None = None
        self._loss: float | None = None
        """The last one that is known: not every clock computes it."""
        self._last: Mapping[str, Any] | None = None

    def progress(self) -> ev.Progressed | None:
        """The newest clock; None if it was returned before."""
        self._read_log()
        latest = self._latest
        self._latest = None
        return latest

    def ending(self) -> ev.StopRequested | None:
        """How the training ended; None while it goes on. Raises SpotctlError if the run is to be
        resumed.
        """
        code = exit_code_of(self._process)
        if code is None:
            return None
        if code == HEAD_LOST:
            raise SpotctlError(
                f"job {self._job}: the head of the Ray cluster does not answer; once there is a "
                f"cluster, 'spotctl resume {self._job}' continues from the newest checkpoint"
            )

        self._read_log()
        if code or self._last is None:
            # The last line that was printed says why the training failed.
            lines = self._output.read_text(encoding="utf-8", errors="replace").split("\n")
            last_words = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return ev.StopRequested(FAILED, last_words or f"its process ended with status {code}")

        loss = self._last["loss"]
        message = f"{self._last['clocks']} clocks" + ("" if loss is None else f", loss {loss:.4g}")
        folder = self._environment.published.rstrip("/") or str(self._results)
        return ev.StopRequested(DONE, message, {**self._last, "model": f"{folder}/{MODEL_FILE}"})

    def close(self) -> None:
        """Ends the training and its nodes, if they have not ended."""
        until = time.monotonic() + _END_SECONDS
        # The process is not reaped yet, so its number is not another process's.
        os.kill(self._process.pid, signal.SIGINT)
        while exit_code_of(self._process) is None and time.monotonic() < until:
            time.sleep(_TURN_SECONDS)
        signal_group(self._process, signal.SIGKILL)
        self._process.wait()

    def _read_log(self) -> None:
        """Reads the lines since the last call, without one that is not complete."""
        with suppress(FileNotFoundError), (self._results / LOG_FILE).open("rb") as log:
            log.seek(self._read)
            for text in log:
                if not text.endswith(b"\n"):
                    return
                self._read += len(text)
                line = json.loads(text)
                if "clock" in line:
                    self._loss = self._loss if line["loss"] is None else line["loss"]
                    self._latest = ev.Progressed(line["clock"], self._loss, line["stage"])
                else:
                    self._last = line


def train(
    spec: JobSpec,
    journal: Journal,
    environment: RunEnvironment,
    pause: Callable[[], None],
    wall_us: Callable[[], int],
) -> ev.RunEnded:
    """Runs the job to its end, or until it is asked to stop; `pause` is called between turns."""
    if journal.state.stopping is None:
        assert journal.state.began is not None
        training = RayTraining(spec, environment, journal.state.began.spec)
        reported_at = 0.0
        try:
            while journal.state.stopping is None:
                over = training.ending()
                due = over is not None or time.monotonic() - reported_at > REPORT_EVERY
                if due and (latest := training.progress()) is not None:
                    journal.write(latest)
                    reported_at = time.monotonic()
                if over is not None:
                    journal.write(over)
                pause()
                time.sleep(_TURN_SECONDS)
                journal.catch_up()
        finally:
            training.close()

    stop = journal.state.stopping
    assert stop is not None
    facts = {**stop.facts, "spent": 0, "cluster": spec.cluster}
    journal.write(ev.RunEnded(stop.outcome, stop.message, wall_us(), facts))
    assert journal.state.ended is not None

    return journal.state.ended


def main(folder: str, state: str) -> int:
    """Trains to the end; with exit code 1 it failed, as the last line printed says; with
    `HEAD_LOST` it can go on.
    """
    from agileml.engines.chaos import QUIET
    from agileml.engines.ray import RayEngine
    from agileml.engines.ray.cluster import HeadLost
    from agileml.errors import AgileMLError
    from agileml.iteration_log import IterationLog, last_line_of
    from agileml.job import GaveUp
    from pricing_data.errors import PricingDataError
    from spotctl.agent.data.transfer import deliver
    from spotctl.agent.errors import AgentError
    from spotctl.files.job.programs import Training
    from spotctl.files.job.reader import restored
    from spotctl.files.model_files import check_nothing_lost, save_model
    from spotctl.run.environment import LAUNCHER
    from spotctl.run.work.training_nodes import prepared
    from spotctl.run.work.training_workload import CHECKPOINT_FILE, training_job

    results = Path(folder)
    spec = restored(json.loads((results / JOB_FILE).read_text()), Path("job"))
    program = spec.program
    transient = spec.resources.machines.least
    assert isinstance(program, Training)
    sys.path.append(str(spec.workdir))

    try:
        job: TrainingJob | RunnableJob
        training = training_job(spec)
        if program.parallel is None:
            job = replace(training, transient=transient)
        else:
            # Each node of a pipeline is replaced.
            nodes = training.reliable + transient
            job = prepared(
                replace(training, reliable=nodes), program.parallel, nodes, spec.workdir, {}
            )
        with IterationLog(results / LOG_FILE, resumes=is_unfinished(Path(state))) as log:
            trained = RayEngine(program.address, state=Path(state)).run(job, QUIET, log.write)
            check_nothing_lost(trained.counters)
            save_model(trained.model, results / MODEL_FILE)
            log.put(last_line_of(trained))
        if "://" in (published := spec.outputs.get("model", "")):
            deliver(results, published, LAUNCHER)
    except GaveUp as error:
        save_model(error.trained.model, results / CHECKPOINT_FILE)
        sys.stderr.write(
            f"{error}; the model after clock {error.trained.clocks} is "
            f"{results / CHECKPOINT_FILE}\n"
        )
        return 1
    except HeadLost as error:
        sys.stderr.write(f"{error}\n")
        return HEAD_LOST
    except (AgentError, AgileMLError, PricingDataError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1

    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
