"""Machines that are processes of this computer, forked by a fork server. One that is taken away is
killed with SIGKILL.
"""

import os
import secrets
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

from agileml.engines.base import FleetEvent, Gone, Joined, MachineFleet
from agileml.engines.chaos import Script
from agileml.engines.job_loop import JobLoop
from agileml.engines.local.fork_server import LOG_SUFFIX, OUTPUT_SUFFIX, Start
from agileml.errors import AgileMLError, BadArgument
from agileml.job import Listener, Trained, TrainingJob
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Warned
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.folders import short_folder
from agileml.runtime.ground import take_lock
from agileml.runtime.output import Output, Printed, show
from agileml.runtime.prepared_job import PreparedJob, RunnableJob, shape_of
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Clocks
from agileml.runtime.role_specs import Role
from agileml.slowdowns import SlowServer
from agileml.user_code import crash_site

_BOOT = """\
import sys
from multiprocessing.connection import Connection
descriptor, alive, folder, keep = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "keep"
connection = Connection(descriptor)
sys.path[:], preloaded = connection.recv()
for name in preloaded:
    __import__(name)
from agileml.engines.local.fork_server import main
main(connection, [alive, *map(int, filter(None, sys.argv[5:]))], folder, keep)
"""
"""Runs the fork server, with its parent's module search path."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each node gets one processor: with more threads the nodes of a computer would slow each other
down."""

_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""For glibc: the next arrays are as large as the last ones, and the system clears memory that was
freed."""

NODE_ENVIRONMENT = {**_ONE_THREAD, **_KEPT_MEMORY}

_PRELOADED = ("torch", "torch._dynamo", "lightning.pytorch", "transformers.trainer")
"""Slow to import; if this process has imported them for the trainer, the fork server does so once
for all nodes."""

CLOSE_SECONDS = 10.0
"""Time for the fork server to kill its processes and exit."""
OUTPUT_LINES = 3

LOCK = "lock"
LOCK_SECONDS = 10.0
"""Time for the processes of a killed parent to end."""


class Processes:
    """The processes of a job, in a folder for their sockets and logs.

    A temporary folder is removed at the end. A folder that is given stays, with the logs in it.
    """

    def __init__(self, folder: Path | None = None, *, nodes: bool = True) -> None:
        """With `nodes`, their large modules are imported before the first one starts; a controller
        needs none.
        """
        self._keep = folder is not None
        self._lock = None if folder is None else _lock_folder(folder)
        self.folder = folder or short_folder()
        self._stopped: set[str] = set()
        self._connection, theirs = Pipe()
        self._all_ended, alive = os.pipe()
        """Every process holds the other end, so that this one ends when the last of them has."""

        try:
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    *map(str, (theirs.fileno(), alive, self.folder)),
                    "keep" if self._keep else "",
                    "" if self._lock is None else str(self._lock),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), alive, *filter(None, [self._lock])],
                env={**os.environ, **NODE_ENVIRONMENT},
                # A Ctrl-C is for the command alone, also while this process starts.
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            os.close(self._all_ended)
            self._leave_folder()
            raise
        finally:
            theirs.close()
            os.close(alive)

        self._connection.send(
            (sys.path, [name for name in _PRELOADED if nodes and name in sys.modules])
        )

    def start(self, name: str, role: Role) -> None:
        """Starts a process. Raises AgileMLError if the fork server is gone."""
        self._send(Start(name, role))

    def stop(self, name: str) -> None:
        """Kills a process and what it has started; `ended` reports it with status None."""
        self._stopped.add(name)
        self._send(name)

    def ended(self) -> list[Gone]:
        """The processes that ended since the last call. Raises AgileMLError if the fork server is
        gone.
        """
        ended: list[Gone] = []
        try:
            while self._connection.poll():
                # With its exit status, or the signal by which it ended (negative).
                name, code = self._connection.recv()
                status = None if name in self._stopped else code
                self._stopped.discard(name)
                files = [self.folder / f"{name}{suffix}" for suffix in (OUTPUT_SUFFIX, LOG_SUFFIX)]
                output = next(filter(None, map(_end_of, files)), "") if status else ""
                if not self._keep:
                    for file in files:
                        file.unlink(missing_ok=True)
                ended.append(Gone(name, status, output))
        except (EOFError, OSError) as error:
            raise self._lost() from error
        return ended

    def close(self) -> None:
        """Kills all processes and removes a temporary folder."""
        self._connection.close()
        try:
            if not self._ends_within(CLOSE_SECONDS):
                self._server.kill()
                # The server's children notice and exit by themselves, and remove the folder as this
                # process does.
                self._ends_within(CLOSE_SECONDS)
        finally:
            self._server.kill()
            self._server.wait()
            os.close(self._all_ended)
            self._leave_folder()

    def _leave_folder(self) -> None:
        """Removes a temporary folder, or unlocks one that stays."""
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    def _ends_within(self, seconds: float) -> bool:
        """Waits until no process of the job is left."""
        ready, _, _ = select.select([self._all_ended], [], [], seconds)
        return bool(ready)

    def _send(self, order: Start | str) -> None:
        try:
            self._connection.send(order)
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> AgileMLError:
        return AgileMLError(
            f"the process that runs the job's machines is gone (status {self._server.poll()}); "
            "start the job again"
        )


def _lock_folder(folder: Path) -> int:
    """A descriptor that locks a folder while any process holds it: those of a killed parent take a
    moment to end.
    """
    try:
        return take_lock(folder / LOCK, seconds=LOCK_SECONDS)
    except BlockingIOError:
        raise AgileMLError(
            f"folder {folder} is in use: another process runs the job in it"
        ) from None
    except OSError as error:
        raise AgileMLError(f"folder {folder}: {error.strerror or error}") from error


def _end_of(log: Path) -> str:
    try:
        return end_of(log.read_text(errors="replace"))
    except OSError:
        return ""


def end_of(text: str) -> str:
    """Where a process crashed, or else the last lines of what it wrote."""
    return crash_site(text) or " | ".join(text.strip().splitlines()[-OUTPUT_LINES:])


SECRET_BYTES = 32


class LocalEngine:
    """Runs jobs on processes of this computer."""

    def run(
        self,
        job: TrainingJob | RunnableJob,
        script: Script,
        listener: Listener,
        output: Output = show,
    ) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        plan = prepare_job(job, output)
        with closing(Processes()) as processes:
            rendezvous = FolderRendezvous(processes.folder, secrets.token_bytes(SECRET_BYTES))
            return run_job(
                LocalFleet(plan, processes, rendezvous), rendezvous, plan, script, listener, output
            )


def prepare_job(job: TrainingJob | RunnableJob, output: Output) -> RunnableJob:
    """Determines the shape of a job, unless that was done before.

    Raises BadArgument if it asks for what only a simulation can do.
    """
    if not isinstance(job, TrainingJob):
        return job
    if any(isinstance(slowdown, SlowServer) for slowdown in job.slowdowns):
        raise BadArgument(
            "chaos: 'slow server' limits a simulated network; use it with the sim engine"
        )

    plan = PreparedJob(job, shape_of(job))
    if plan.shape.note:
        output(Printed("job", plan.shape.note))
    return plan


def run_job(
    fleet: MachineFleet,
    rendezvous: FolderRendezvous,
    plan: RunnableJob,
    script: Script,
    listener: Listener,
    output: Output,
    earlier: Sequence[str] = (),
) -> Trained:
    """Runs a job to its end on a fleet; `earlier` are the nodes of a process that has begun it."""
    job = plan.job
    with closing(ControllerClient(rendezvous, Clocks(listener), output, job.transport)) as client:
        loop = JobLoop(fleet, client, script, output, least=plan.least_nodes)
        result = loop.run(job.reliable, job.transient, earlier)
    return plan.trained(result, ModelCheckpoints(rendezvous.blobs).load)


CONTROLLER_MEMORY = "controller.jsonl"
"""The file in the job's folder from which a restarted controller resumes."""


class LocalFleet:
    """The controller and the nodes of a job as processes."""

    starts_nodes = True

    def __init__(
        self, plan: RunnableJob, processes: Processes, rendezvous: FolderRendezvous
    ) -> None:
        self._plan = plan
        self._processes = processes
        self._rendezvous = rendezvous
        self._began = time.monotonic()
        self._deadlines: dict[str, float] = {}
        self._running: set[str] = set()
        self._events: list[FleetEvent] = []

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the fleet was created."""
        return time.monotonic() - self._began

    def start_controller(self) -> None:
        """Forks the controller."""
        memory = self._rendezvous.folder / CONTROLLER_MEMORY
        elsewhere = self._rendezvous.listen is not None
        role = self._plan.controller_role(self._rendezvous, memory)
        # People can start another node in place of one that was lost.
        needs_all = elsewhere and not self.starts_nodes
        self._start(CONTROLLER, replace(role, needs_all=needs_all, may_lack_nodes=elsewhere))

    def start_node(self, name: str, *, reliable: bool) -> None:
        """Forks a node."""
        self._start(name, self._plan.node_role(self._rendezvous, name, reliable=reliable))
        self._events.append(Joined(name, reliable))

    def stop(self, name: str, notice: float | None = None) -> None:
        """Kills the process, after `notice` seconds if given."""
        if name not in self._running:
            return
        if notice is None:
            self._deadlines.pop(name, None)
            self._kill(name)
        elif name not in self._deadlines:
            self._deadlines[name] = time.monotonic() + notice
            self._events.append(Warned(name, notice))

    def events(self) -> Sequence[FleetEvent]:
        """Kills the processes whose notice is over, and reports those that ended."""
        now = time.monotonic()
        for name in [name for name, at in self._deadlines.items() if at <= now]:
            self.stop(name)
        events = self._events
        self._events = []

        for gone in self._ended():
            self._running.discard(gone.name)
            self._deadlines.pop(gone.name, None)
            events.append(gone)
        return events

    def close(self) -> None:
        """Kills what still runs and removes the folder, unless it was given."""
        self._processes.close()

    def _kill(self, name: str) -> None:
        self._processes.stop(name)

    def _ended(self) -> Sequence[Gone]:
        return self._processes.ended()

    def _start(self, name: str, role: Role) -> None:
        self._running.add(name)
        self._processes.start(name, role)
