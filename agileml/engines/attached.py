"""A job whose machines are started by its caller: each runs `python -m agileml.join` and proves
that it has the secret.

The job's folder holds everything that its processes share, and everything that a later process
needs to continue the job (`is_unfinished`): what a node needs, the controller's memory,
checkpoints. The secret is not in it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from agileml.engines.base import FleetEvent, Gone
from agileml.engines.chaos import QUIET, Script
from agileml.engines.interrupts import until_done
from agileml.engines.job_loop import TURN_SECONDS, JobLoop
from agileml.engines.local.fleet import CONTROLLER_MEMORY, LocalFleet, Processes, prepare_job
from agileml.errors import AgileMLError, BadArgument, BadInput, Unrecoverable
from agileml.job import Listener, Trained, TrainingJob
from agileml.params.layout import Params
from agileml.protocol.messages import Warned
from agileml.roles.node import JobSettings
from agileml.runtime.attach import PublishedJob, code_version, publish, published, published_in
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.controller_client import ControllerClient
from agileml.runtime.controller_process import Memory
from agileml.runtime.output import Output, show
from agileml.runtime.prepared_job import RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Clocks
from agileml.transport import BadAddress, TcpAddress, sockets
from agileml.transport.addresses import UnixAddress
from agileml.transport.handshake import check_secret

RELEASE_SECONDS = 15.0
"""How long a finished job waits for its nodes to leave."""


class AttachedFleet(LocalFleet):
    """Runs only the controller; what happens to the machines is reported by the caller who starts
    them.
    """

    starts_nodes = False

    def __init__(
        self, plan: RunnableJob, processes: Processes, rendezvous: FolderRendezvous
    ) -> None:
        super().__init__(plan, processes, rendezvous)
        self.reported: list[FleetEvent] = []
        """The changes of machines that the caller has reported since the last turn."""

    # No fleet of its own.
    def start_node(self, name: str, *, reliable: bool) -> None:  # noqa: ARG002
        """Refused: the caller starts the machines."""
        raise AgileMLError(f"{name}: the machines of an attached job are started by its caller")

    def events(self) -> Sequence[FleetEvent]:
        """The reported events, and the end of a controller."""
        reported = self.reported
        self.reported = []
        return [*reported, *super().events()]


class AttachedJob:
    """A job's controller, in a process of its own. The caller reports what happens to the machines.

    When this process is gone, another AttachedJob on the same folder continues the job.
    """

    def __init__(
        self,
        plan: RunnableJob,
        folder: Path | None,
        secret: bytes,
        listener: Listener,
        last_clock: int = 0,
        output: Output = lambda _: None,
        listen: TcpAddress | None = None,
    ) -> None:
        """Without a folder the job has a temporary one. With `listen`, nodes of other computers can
        join, too.
        """
        self._plan = plan
        processes = Processes(folder, nodes=False)
        version = "" if listen is None else code_version()
        rendezvous = FolderRendezvous(processes.folder, secret, listen, version)

        if listen is not None:
            try:
                _check_free(listen)
            except BaseException:
                processes.close()
                raise

        self._checkpoints = ModelCheckpoints(rendezvous.blobs)
        publish(plan.node_role(replace(rendezvous, secret=b"")), rendezvous.blobs)
        self.client = ControllerClient(
            rendezvous, Clocks(listener, last_clock), output, plan.job.transport
        )
        self._fleet = AttachedFleet(plan, processes, rendezvous)
        self._loop = JobLoop(self._fleet, self.client, QUIET, output, replaces=False)
        self._fleet.start_controller()
        self.expelled: tuple[str, ...] = ()
        """The nodes that broke the rules: their machines do nothing for the job any more."""

    def turn(self, longest: float) -> Trained | None:
        """Listens for at most this many seconds; the trained model once there is one.

        Raises an AgileMLError if the job cannot continue.
        """
        # What was reported since the last turn must not wait until this one ends.
        self._loop.handle_events()
        result = self._loop.turn(longest)
        self.expelled = self.client.expelled
        if result is None:
            return None
        with _sound_arrays():
            return self._plan.trained(result, self._checkpoints.load)

    def release(self, seconds: float) -> None:
        """Waits until all nodes of a job that is over have left, for at most this many seconds."""
        until = time.monotonic() + seconds
        while self.client.linked_nodes and time.monotonic() < until:
            # Nodes hear from a controller that the job is over: one that ends before it has told
            # them is replaced.
            with suppress(Unrecoverable):
                self._loop.handle_events()
            for _ in self.client.listen(TURN_SECONDS):
                pass

        # What the nodes printed at their end has arrived at the controller by now.
        self.client.settle(max(0.0, until - time.monotonic()))

    def stop(self, *, finish: bool = False) -> None:
        """Ends the job with its last stable model; with `finish`, with the clock in progress, as
        its settings would.
        """
        if finish:
            self.client.stop(finish=True)
        else:
            self._loop.stop()

    def warn(self, node: str, seconds: float) -> None:
        """A node's machine will be taken away after `seconds`."""
        self._fleet.reported.append(Warned(node, seconds))

    def lose(self, node: str) -> None:
        """A node is gone, or its machine is."""
        self._fleet.reported.append(Gone(node))

    def close(self) -> None:
        """Ends the controller; the folder stays."""
        self.client.close()
        self._fleet.close()


@dataclass(frozen=True, slots=True)
class AttachEngine:
    """Runs jobs on nodes that are started elsewhere, and that join at this address with this
    secret.
    """

    listen: TcpAddress
    secret: bytes = field(repr=False)
    state: Path | None = None
    """A folder for the job's state: if this process is killed, another run with the same folder
    continues the job."""

    def run(
        self,
        job: TrainingJob | RunnableJob,
        script: Script,
        listener: Listener,
        output: Output = show,
    ) -> Trained:
        """Waits for the job's nodes and trains until its stopping criterion holds.

        Raises an AgileMLError if it cannot; BadAddress, before any work is done, if the address
        cannot be used.
        """
        if script is not QUIET:
            raise BadArgument(
                "chaos: faults cannot be injected into nodes that are started elsewhere;"
                " send SIGTERM to a node for a warning, SIGKILL for a failure"
            )

        check_secret(self.secret)
        if self.state is None:
            _check_free(self.listen)
        plan = prepare_job(job, output)
        if self.state is not None:
            prepare_state(self.state, plan)

        with closing(
            AttachedJob(plan, self.state, self.secret, listener, 0, output, self.listen)
        ) as attached:
            try:
                trained, interrupted = until_done(
                    lambda: attached.turn(TURN_SECONDS), attached.stop
                )
            except AgileMLError:
                attached.release(RELEASE_SECONDS)
                raise
            attached.release(RELEASE_SECONDS)

        return replace(trained, interrupted=interrupted)


def _check_free(listen: TcpAddress) -> None:
    """Raises BadAddress, before any work is done, if the controller could not listen at an
    address."""
    probe, _ = sockets.listen(listen)
    probe.close()


def newest_checkpoint(folder: Path) -> tuple[int, Params] | None:
    """The clock and the model of the newest complete checkpoint in a job's folder; None if there is
    none.
    """
    job = published_in(folder)
    checkpoints = ModelCheckpoints(FolderRendezvous(folder, b"").blobs)
    if job is None:
        return None

    partitions = job.role.partitions
    clocks = checkpoints.complete(partitions)
    if not clocks:
        return None

    role = job.role
    with _sound_arrays():
        versions = [checkpoints.load(partition, clocks[0]) for partition in range(partitions)]
        return clocks[0], role.model(versions)


@contextmanager
def _sound_arrays() -> Iterator[None]:
    """Something is made of arrays that nodes have sent; Unrecoverable if they do not have the
    model's shape.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise Unrecoverable(
            f"what a node has sent or saved is no part of this model ({type(error).__name__}: "
            f"{error});"
            " the machine may be another's now: start the training again on other machines"
        ) from error


_LONGEST_NAME = "controller.sock"
_OWN = ("lock", "node.job", "checkpoints")
"""Files in the folder before the job begins, apart from sockets and logs."""


def is_unfinished(folder: Path) -> bool:
    """Whether a job in this folder has begun and not ended."""
    return (folder / CONTROLLER_MEMORY).is_file()


def nodes_so_far(folder: Path) -> tuple[str, ...]:
    """The names of all nodes that have joined a job in this folder."""
    if not is_unfinished(folder):
        return ()
    with closing(Memory(folder / CONTROLLER_MEMORY)) as memory:
        return tuple(memory.instances)


def prepare_state(folder: Path, plan: RunnableJob) -> None:
    """Creates the folder, or checks that what is in it belongs to this training. Raises BadInput if
    it does not.
    """
    try:
        UnixAddress(str(folder / _LONGEST_NAME))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strangers = not is_unfinished(folder) and any(folder.iterdir())
    except BadAddress:
        raise BadInput(
            f"state folder {folder}: its path is too long for the sockets in it; choose a shorter "
            "one"
        ) from None
    except OSError as error:
        raise BadInput(
            f"state folder {folder}: {error.strerror or error}; name another folder"
        ) from None

    if strangers and not all(
        path.name in _OWN or path.suffix in (".sock", ".log", ".out") for path in folder.iterdir()
    ):
        raise BadInput(
            f"state folder {folder} contains files that are not a job's state; name another folder"
        )
    if is_unfinished(folder) and (changed := _difference(published_in(folder), plan)):
        raise BadInput(
            f"state folder {folder} holds a training with {changed};"
            " name another folder for a new training, or delete this one"
        )


def _difference(before: PublishedJob | None, plan: RunnableJob) -> str:
    """The differences that keep one job from continuing with the other's model; empty if they are
    the same.
    """
    if before is None:
        return ""

    source = before.role.job.source
    job = before.role.job
    if Path(source.target).name != Path(plan.job.source.target).name:
        return f"another trainer, {source.target}"
    if dict(source.arguments) != dict(plan.job.source.arguments):
        return f"other arguments of the trainer, {dict(source.arguments)}"

    now = published(plan.node_role(before.role.rendezvous))
    for setting in fields(JobSettings):
        old = getattr(job.settings, setting.name)
        if old != getattr(now.role.job.settings, setting.name):
            return f"{setting.name.replace('_', ' ')} {old}"

    if before.files != now.files:
        return "other code of the trainer"
    return "" if before.role.work == now.role.work else "other shards"
