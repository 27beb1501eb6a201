"""A job as an engine needs it: the shape of its model and data, the roles of its processes, the
result.

`isolated_shape_of` loads a trainer in a child process: trainers of several jobs may have modules
and environment variables of the same names, so one process cannot load them all.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from agileml.apps.registry import TrainerSource
from agileml.core.controller import Controller
from agileml.errors import AgileMLError, TrainerFailed
from agileml.job import GaveUp, Trained, TrainingJob
from agileml.params.commit import calling, name_of
from agileml.params.layout import Layout
from agileml.protocol.messages import Version
from agileml.runtime.node_process import TrainerRole
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Result, counted, model_of
from agileml.runtime.rights import Bounds
from agileml.runtime.role_specs import ControllerRole, NodeRole
from agileml.trainer import Trainer, initial_model, plan_of, shards_of
from agileml.work import WorkPlan

T = TypeVar("T")

_CHILD = "from agileml.runtime.prepared_job import main; main()"
"""Not `-m`: the answer's class must be importable by its name in the parent. The working directory
is on the path."""


@dataclass(frozen=True, slots=True)
class JobShape:
    """The chunks of every clock, the layout of the model, and the version of the trainer's code.

    `note` is what a trainer that checks itself says about its start, and `clocks` how many it has,
    if it says so.
    """

    plan: WorkPlan
    layout: Layout
    code: str
    note: str = ""
    clocks: int = 0


def shape_of(job: TrainingJob) -> JobShape:
    """The shape of a job whose trainer may be loaded in this process."""
    return _shape(job.source, job.settings.seed, job.settings.partitions)


def isolated_shape_of(job: TrainingJob, folder: Path, variables: Mapping[str, str]) -> JobShape:
    """The shape of a job, whose trainer is loaded in another process, in a folder and with
    environment variables.
    """
    arguments = job.source, job.settings.seed, job.settings.partitions
    return isolated(partial(_shape, *arguments), job.source.target, folder, variables)


def isolated(call: Callable[[], T], target: str, folder: Path, variables: Mapping[str, str]) -> T:
    """Calls a function of a module that loads the user's code, in another process.

    Raises what it raises. This process's environment, modules and working directory stay as they
    are.
    """
    request = pickle.dumps(call)
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # A Ctrl-C is for the command alone, also while this process starts.
            start_new_session=True,
        )
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                # stdin stays open: its end tells the child that this process is gone.
                child.stdin.write(request)
                child.stdin.flush()
                answer = child.stdout.read()
            except BrokenPipeError:
                answer = b""
        result = pickle.loads(answer) if answer else None  # noqa: S301 - written by our own child
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()

    if isinstance(result, AgileMLError):
        raise result
    if result is not None:
        answered: T = result
        return answered

    status = f"status {child.returncode}: {lines[-1] if lines else 'no output'}"
    raise TrainerFailed(f"{target}: the process that loads it ended with {status}")


def _shape(source: TrainerSource, seed: int, partitions: int | None) -> JobShape:
    trainer = source.load()
    plan = plan_of(trainer, shards_of(trainer))
    layout = Layout.cut(initial_model(trainer, seed), partitions)
    return JobShape(
        plan, layout, source.code(), start_note(trainer, seed), getattr(trainer, "clocks", 0)
    )


def start_note(trainer: Trainer, seed: int) -> str:
    """Lets a trainer check itself before a job starts: what it says, or the error that it
    raises."""
    check = getattr(trainer, "check_start", None)
    if check is None:
        return ""
    with calling(f"{name_of(trainer)}: check_start"):
        return str(check(seed))


def main() -> None:
    """Answers one request."""
    # The terminal sends Ctrl-C to every process; the caller decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What the trainer prints is not the answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    result: object

    try:
        result = request()
    except AgileMLError as error:
        result = type(error)(str(error))

    with answer:
        pickle.dump(result, answer)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


@dataclass(frozen=True, slots=True)
class RunnableJob(ABC):
    """A job with all that a fleet needs to start its processes."""

    job: TrainingJob
    nodes_are_alike: ClassVar[bool] = False
    """Whether no node has to outlive the others, so that each may run on a machine of any kind."""

    @property
    def least_nodes(self) -> int:
        """The model does not fit on fewer nodes."""
        return 1

    @abstractmethod
    def controller_role(self, rendezvous: Rendezvous, memory: Path) -> ControllerRole:
        """The controller's role; `memory` is the file from which a restarted controller resumes."""

    @abstractmethod
    def node_role(
        self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False
    ) -> NodeRole:
        """A node's role."""

    @abstractmethod
    def trained(self, result: Result, load: Callable[[int, int], Version]) -> Trained:
        """The result of the whole job; `load` reads a partition's version from a checkpoint.

        GaveUp: the job ended early, because nodes failed again and again.
        """


@dataclass(frozen=True, slots=True)
class PreparedJob(RunnableJob):
    """A training with workers and servers, and its shape."""

    shape: JobShape

    def controller_role(self, rendezvous: Rendezvous, memory: Path) -> ControllerRole:
        shape = self.shape
        partition_bytes = self.shape.layout.partition_bytes()
        return ControllerRole(
            rendezvous=rendezvous,
            memory=memory,
            code=shape.code,
            job=self.job,
            model_bytes=sum(partition_bytes),
            bounds=Bounds(len(partition_bytes), len(shape.plan.lengths), shape.layout),
            control=partial(Controller.resume, shape.plan, partition_bytes),
        )

    def node_role(
        self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False
    ) -> NodeRole:
        layout = self.shape.layout
        return TrainerRole(
            name=name,
            reliable=reliable,
            rendezvous=rendezvous,
            job=self.job,
            work=self.shape.plan,
            partitions=len(layout),
            layout=layout,
        )

    # The controller has sent the model.
    def trained(self, result: Result, load: Callable[[int, int], Version]) -> Trained:  # noqa: ARG002
        counters = counted(result.tally, result.versions)
        model = model_of(self.shape.layout, result.versions)
        trained = Trained(
            result.clock,
            model,
            counters,
            result.evictions,
            result.failures,
            result.interrupted,
            result.loss,
            self.shape.plan.items_until(result.clock),
        )

        if result.failure:
            raise GaveUp(result.failure, trained)
        return trained
