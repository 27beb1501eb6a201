"""The work of a command job: a program that resumes from its own checkpoint, wherever its nodes are
started.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Any

from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND, counted
from spotctl.agent.checkpoints.stored import (
    StoredCheckpoints,
    forget_ended,
    have_ended,
    note_finished,
)
from spotctl.agent.container.payload import NODE, CheckpointPolicy, NodeTask, Payload
from spotctl.agent.container.podman import NO_CONTAINER
from spotctl.agent.environment.built import UV
from spotctl.agent.errors import AgentError, BadCheckpoint
from spotctl.agent.layout import TASK_VARIABLE
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.clouds.errors import NotPermitted, ProviderError
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.provider import Machine
from spotctl.files.job.data_places import copies_near, store_packages
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec, data_variable, output_variable
from spotctl.log import events as ev
from spotctl.log.outcomes import DONE, FAILED
from spotctl.log.state import RunState
from spotctl.run.environment import RunEnvironment
from spotctl.run.machine_output import last_lines
from spotctl.run.work.gang import (
    PREPARE,
    SETUP,
    GangShape,
    GangStep,
    allowed,
    free_since,
    move_to,
    next_step,
    node_variables,
    rest_name,
    run_name,
)
from spotctl.run.work.training_nodes import free_port
from spotctl.run.work.workload import Workload, WorkReport, container_of

PAUSE = 0.1
LOOK_SECONDS, REMOTE_LOOK_SECONDS = 0.5, 10.0
"""Seconds between checks of the checkpoint folder, or of an object store, where each request costs
money."""

_ATTEMPT = re.compile(r"\d{1,9}", re.ASCII)

GRACE_SECONDS = 20.0
"""Seconds for a program to write its checkpoint, and for the agent to copy it, when its machine is
returned."""

PEER_SECONDS = 5.0
"""How long a failed node of a gang waits for the news that one of its peers was evicted."""

LONGEST_INTERVAL = HOUR
"""A checkpoint is written at least this often, unless the job says how often."""

RESTART_SECONDS = 60.0
"""Seconds that a program is assumed to need for a restart, besides its checkpoint."""

MARKS = "spotctl"
"""The folder of marks below an output."""

INCOMPLETE_SECONDS, INCOMPLETE = 3.0, 5 * MINUTE
"""How long an incomplete gang waits for its last nodes: at least these seconds, and this long in
market time."""


class CommandWorkload(Workload):
    """Done when the program exits with status 0 on all nodes; any other status fails the job.

    `mean_life` takes a market, a bid and a number of machines, and returns the expected time
    (microseconds of the provider's clock) until the first of these machines is evicted.
    `split_text` takes a market and returns the plan of the command's model there, as JSON; empty
    for none. `save_time` is what a checkpoint is expected to take, in microseconds of that clock,
    until one was measured.
    """

    def __init__(
        self,
        spec: JobSpec,
        environment: RunEnvironment,
        mean_life: Callable[[Market, int | None, int], float],
        save_time: Callable[[], int],
        split_text: Callable[[Market], str] = lambda _: "",
    ) -> None:
        assert isinstance(spec.program, Command)
        self._spec = spec
        self._command = spec.program
        self._environment = environment
        self._mean_life = mean_life
        self._save_time = save_time
        self._split_text = split_text
        pause = max(INCOMPLETE, round(INCOMPLETE_SECONDS * environment.provider.speed * SECOND))
        self._container = container_of(spec)
        assert not isinstance(spec.environment, str)
        self._packages = spec.environment
        prepares = bool(spec.setup or spec.data or self._container or self._packages)
        self._shape = GangShape(
            self._command.nodes.least, self._command.nodes.most, prepares, pause
        )
        self._failing_since: float | None = None
        self._looked_at = 0.0
        self._stored: dict[int, StoredCheckpoints] = {}
        self._newest: dict[int, int] = {}

    def payload(self, order: ev.RentIntended) -> Payload | None:
        """The setup of a machine, if the job has one; the command follows when all nodes are
        there."""
        if order.reliable or not self._shape.prepares:
            return None

        variables = dict(self._environment.variables)
        task = NodeTask(
            PREPARE,
            setup=self._spec.setup or "",
            environment=variables,
            **self._files(order.market),
        )

        return self._payload(PREPARE, PREPARE, task)

    def supplies(self) -> MachineSupplies:
        """The job's folder, and the secrets that it names."""
        packages = store_packages(self._spec)
        if self._packages is not None:
            packages = (*packages, UV)
        return MachineSupplies(
            self._environment.secrets, self._environment.workdir, packages=packages
        )

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:
        """Looks at nodes and checkpoints, and assigns work to machines."""
        time.sleep(PAUSE)
        checkpoints = tuple(self._new_checkpoints(state))
        if state.stopping is not None:
            return WorkReport(events=checkpoints)

        # For a restart, a checkpoint is written and read.
        second = SECOND * self._environment.provider.speed
        newest = state.work.checkpoint
        cost = self._save_time() if newest is None else newest.seconds * second
        restart = round(2 * cost + RESTART_SECONDS * second)
        self._shape = shape = replace(
            self._shape, restart=restart, free=free_since(machines, self._shape, now)
        )
        step = self._ended_unseen(
            state, self._tried_again(state, next_step(state, machines, shape, now))
        )
        move = None
        if step.begin:
            move = move_to(state, self._spec, step.begin, now, self._environment.lists)

        sent: tuple[ev.Sent, ...] = ()
        if move is not None:
            checkpoint_sent, there_at = move
            if self._environment.rented or now >= there_at:
                sent = (checkpoint_sent,)
            else:
                # The local market has distances, too; on a cloud, restoring takes the time itself.
                step = replace(step, begin=())

        self._assign_work(state, machines, step)
        failed_setups = tuple(
            ev.SetupFailed(machine, code, last_lines(self._environment, machine))
            for machine, code in step.unprepared.items()
        )

        events = (*checkpoints, *failed_setups, *sent, *self._attempt_events(state, step, now))
        outcome, message = self._outcome(state, step, failed_setups)
        return WorkReport(outcome=outcome, message=message, idle_machines=step.idle, events=events)

    def facts(self) -> Mapping[str, Any]:
        """The places of the job's outputs and of its newest checkpoint, if one was written."""
        kept = self._spec.program.checkpoint if isinstance(self._spec.program, Command) else None
        facts: dict[str, Any] = {"outputs": dict(self._spec.outputs)} if self._spec.outputs else {}
        return facts | ({"checkpoint": kept.path} if kept is not None and self._newest else {})

    def store(self, outcome: str) -> None:
        """Notes next to the checkpoints that the job is finished; removes marks elsewhere, which
        are of no more use.
        """
        if outcome != DONE:
            return

        run = self._environment.run
        who = self._environment.identity
        if self._command.checkpoint is not None:
            try:
                note_finished(self._command.checkpoint.path, run, who)
            except AgentError as error:
                raise BadCheckpoint(
                    f"its checkpoint could not be marked as finished, so the next launch resumes "
                    f"from it: {error}"
                ) from error
        elif self._marks:
            # The launcher need not have access to the outputs.
            with suppress(AgentError):
                forget_ended(self._marks, run, who)

    # -- work for machines -------------------------------------------------------------------------

    def _assign_work(self, state: RunState, machines: Sequence[Machine], step: GangStep) -> None:
        attempt = state.work.attempt
        if attempt is None:
            return

        addresses = {machine.id: machine.address for machine in machines}
        if all(member in addresses for member in attempt.machines):
            for machine in step.run:
                self._assign(machine, self._node(state, attempt, machine, addresses))

        for machine in step.rest:
            self._assign(
                machine,
                Payload(rest_name(attempt.attempt), ("/bin/sh", "-c", ":"), grace_seconds=0.0),
            )

    def _assign(self, machine: str, payload: Payload) -> None:
        try:
            self._environment.provider.link(machine).assign(payload)
        except NotPermitted:
            raise
        except ProviderError:
            # A machine that is gone shows as gone; any other is assigned its work in the next turn.
            return

    def _node(
        self, state: RunState, attempt: ev.AttemptBegan, machine: str, addresses: Mapping[str, str]
    ) -> Payload:
        """The command for one node, with all that it must know about the other nodes."""
        rank = attempt.machines.index(machine)
        nodes = [addresses[member] for member in attempt.machines]
        several = self._command.nodes.most > 1
        variables = {
            "SPOTCTL_JOB": self._spec.name,
            "SPOTCTL_RUN": self._environment.run,
            "SPOTCTL_ATTEMPT": str(attempt.attempt),
            **node_variables(rank, nodes, attempt.port, may_be_several=several),
        }

        market = state.allocations[state.machines[machine].allocation].market
        if split := self._split_text(market):
            variables["SPOTCTL_PARALLEL"] = split

        # How the node keeps checkpoints: durations of the market become seconds of the program.
        policy: CheckpointPolicy | None = None
        checkpoint = self._command.checkpoint
        if checkpoint is not None:
            first = state.allocations[state.machines[attempt.machines[0]].allocation]
            life = self._mean_life(first.market, first.bid, len(attempt.machines))
            second = SECOND * self._environment.provider.speed
            policy = CheckpointPolicy(
                checkpoint.path,
                None if checkpoint.every is None else checkpoint.every / second,
                life / second if isfinite(life) else None,
                self._save_time() / second,
                LONGEST_INTERVAL / second,
                self._command.nodes.is_range,
                checkpoint.keep,
            )

        task = NodeTask(
            self._start(attempt),
            rank=rank,
            run=self._command.run,
            setup=(self._spec.setup or "") if self._container else "",
            environment={**variables, **self._environment.variables},
            checkpoint=policy,
            marks=self._marks,
            **self._files(market),
        )

        return self._payload(run_name(attempt.attempt), "run", task)

    def _payload(self, name: str, action: str, task: NodeTask) -> Payload:
        # -P: no file in the job's folder takes the place of one of our modules.
        paths = self._environment.on_machine
        command = (paths.python, "-P", "-c", NODE, action)
        variables = {TASK_VARIABLE: task.to_json()}
        return Payload(name, command, variables, paths.folder, grace_seconds=GRACE_SECONDS)

    def _files(self, market: Market) -> dict[str, Any]:
        spec = self._spec
        return {
            "cache": self._environment.on_machine.cache,
            "container": self._container,
            "data": {data_variable(name): path for name, path in spec.data.items()},
            "near": copies_near(spec, market.cloud, market.region),
            "outputs": {output_variable(name): path for name, path in spec.outputs.items()},
            "packages": self._packages,
        }

    def _tried_again(self, state: RunState, step: GangStep) -> GangStep:
        """Stops an attempt that has failed, if the job may be tried again after this failure."""
        if step.failed is None:
            self._failing_since = None
            return step

        machine, code = step.failed
        tried = state.work.failures.get(code, 0)
        most = allowed(self._command.retries, code)
        if tried >= most or not self._is_final(state):
            return step

        self._failing_since = None
        output = last_lines(self._environment, machine)
        reason = f"{machine} exited with status {code}: {output}; retry {tried + 1} of {most}"
        return replace(step, stop=reason)

    def _ended_unseen(self, state: RunState, step: GangStep) -> GangStep:
        """A command that ended with status 0, on machines that were gone before they were asked, is
        done.
        """
        attempt = state.work.attempt
        if attempt is None or not self._marks or not (step.begin or step.stop):
            return step

        try:
            ended = have_ended(
                self._marks, self._start(attempt), len(attempt.machines), self._environment.identity
            )
        except AgentError:
            # A node that starts again uses the same place, and reports what is wrong there.
            return step

        return GangStep(done=True) if ended else step

    @property
    def _marks(self) -> str:
        """Where nodes note that their program has ended: next to the checkpoints, or below an
        object store's output.

        Machines of this computer have the run's folder, which outlives them. Rented ones that are
        gone leave nothing.
        """
        if self._command.checkpoint is not None:
            return self._command.checkpoint.path
        output = next((path for path in self._spec.outputs.values() if "://" in path), None)
        if output is not None:
            return f"{output.rstrip('/')}/{MARKS}"
        return "" if self._environment.rented else str(self._environment.rendezvous)

    def _start(self, attempt: ev.AttemptBegan) -> str:
        """The name of an attempt's start of the command on each of its nodes."""
        return f"{self._environment.run}.{attempt.attempt}"

    # -- how it goes -------------------------------------------------------------------------------

    def _attempt_events(self, state: RunState, step: GangStep, now: int) -> Iterator[ev.Event]:
        """Events of the attempt that starts or stops now, with the working times of its
        machines."""
        work = state.work
        if step.begin:
            number = work.number + 1
            share = len(step.begin) / self._command.nodes.most
            # A port for the first node, the same each time unless another program on this computer
            # uses it.
            digest = hashlib.sha256(f"{self._environment.run}-{number}".encode()).digest()
            first = int.from_bytes(digest[:2], "big") % 10_000
            ports = (20_000 + (first + offset) % 10_000 for offset in range(100))
            port = next(filter(free_port, ports), 20_000 + first)
            yield ev.AttemptBegan(number, step.begin, port, share)
            ready = tuple(ev.Moment(machine, now) for machine in step.begin)
            yield ev.Progressed(number, None, 0, ready=ready)
        elif work.runs and (step.stop or step.done):
            attempt = work.attempt
            assert attempt is not None
            if step.stop:
                _, code = step.failed or (None, None)
                yield ev.AttemptStopped(attempt.attempt, step.stop, step.moved, code)
            left = tuple(ev.Moment(machine, now) for machine in attempt.machines)
            yield ev.Progressed(attempt.attempt, None, 0, left=left, redone=work.redone(now))

    def _outcome(
        self, state: RunState, step: GangStep, failed_setups: Sequence[ev.SetupFailed]
    ) -> tuple[str | None, str]:
        retries = self._command.retries
        failed = state.work.setups_failed + len(failed_setups)
        if failed_setups and (
            failed > allowed(retries, SETUP) or failed_setups[-1].code == NO_CONTAINER
        ):
            last = failed_setups[-1]
            return (
                FAILED,
                f"setup failed on {counted(failed, 'machine')}, last with status {last.code}: "
                f"{last.tail}",
            )
        if step.done:
            return DONE, "the command exited with status 0"

        if step.moved and state.work.moves >= allowed(retries, SAVED_AND_ENDED):
            times = counted(state.work.moves + 1, "time")
            asked = (
                f"the command asked {times} in a row to be moved (exit status {SAVED_AND_ENDED})"
            )
            return FAILED, f"{asked} without an eviction warning"
        if step.failed is not None and not step.stop and self._is_final(state):
            machine, code = step.failed
            output = last_lines(self._environment, machine)
            again = state.work.failures.get(code, 0)
            after = f" (retried {counted(again, 'time')})" if again else ""
            return FAILED, f"the command exited with status {code} on {machine}{after}: {output}"

        return None, ""

    def _is_final(self, state: RunState) -> bool:
        """A node of a gang may fail because a peer was evicted, which shows a moment later."""
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        alone = state.work.attempt is not None and len(state.work.attempt.machines) == 1
        return alone or time.monotonic() - self._failing_since > PEER_SECONDS

    def _new_checkpoints(self, state: RunState) -> Iterator[ev.Checkpointed]:
        """Checkpoints of this run that were stored since the last look."""
        checkpoint = self._command.checkpoint
        if checkpoint is None:
            return

        pause = REMOTE_LOOK_SECONDS if "://" in checkpoint.path else LOOK_SECONDS
        if time.monotonic() - self._looked_at < pause and state.stopping is None:
            return

        self._looked_at = time.monotonic()
        logged = {0: state.work.checkpoint.number} if state.work.checkpoint is not None else {}
        for rank in range(1 if self._command.nodes.is_range else self._command.nodes.most):
            try:
                if rank not in self._stored:
                    self._stored[rank] = StoredCheckpoints(
                        checkpoint.path, rank, self._environment.identity
                    )
                stored = self._stored[rank].latest()
            except AgentError:
                # Files of another program; the node that tries to restore from there reports it.
                continue
            if stored is None:
                continue
            run, _, attempt = stored.by.rpartition(".")
            if run != self._environment.run or not _ATTEMPT.fullmatch(attempt):
                continue
            if stored.number <= self._newest.get(rank, logged.get(rank, 0)):
                continue
            self._newest[rank] = stored.number
            yield ev.Checkpointed(
                int(attempt), rank, stored.number, stored.size, stored.seconds, stored.every
            )
