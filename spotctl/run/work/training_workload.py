"""The work of an AgileML job: machines are nodes, eviction warnings go to the controller, and the
result is a model.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agileml.apps.code import split
from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.attached import AttachedJob, newest_checkpoint
from agileml.engines.base import Gone
from agileml.engines.job_loop import CrashGuard
from agileml.errors import AgileMLError
from agileml.iteration_log import last_line_of, line_of, redone_fields, share_fields, spans_text
from agileml.job import MAX_CLOCKS, Convergence, Counters, Stopping, TrainingJob
from agileml.policies.stragglers import Stragglers
from agileml.roles.node import JobSettings
from agileml.runtime.folders import SECRET_VARIABLE
from agileml.runtime.prepared_job import PreparedJob, RunnableJob, isolated_shape_of
from agileml.transport import TcpAddress
from agileml.transport.certificates import credentials_of
from pricing_data.atomic_write import atomic_write
from pricing_data.errors import PricingDataError
from pricing_data.units import SECOND
from spotctl.agent.container.payload import NODE, NodeTask, Payload
from spotctl.agent.container.podman import NO_CONTAINER
from spotctl.agent.container.processes import BEHIND_SETUP
from spotctl.agent.data.transfer import deliver
from spotctl.agent.errors import AgentError, TransferFailed
from spotctl.agent.layout import SETUP_VARIABLE, TASK_VARIABLE
from spotctl.clouds.errors import NotFound, Throttled, Unanswered
from spotctl.clouds.link import MachineSupplies, ReverseTunnel
from spotctl.clouds.local.clock import MAX_STANDING_SECONDS
from spotctl.clouds.provider import Machine, MachineState
from spotctl.files.job.data_places import copies_near, store_packages
from spotctl.files.job.programs import Stop, Training
from spotctl.files.job.spec import JobSpec, data_variable
from spotctl.files.model_files import check_nothing_lost, save_model
from spotctl.log.events import Progressed, RentIntended
from spotctl.log.observed import Timesheet
from spotctl.log.outcomes import DONE, FAILED
from spotctl.log.state import RunState
from spotctl.run.environment import RunEnvironment
from spotctl.run.machine_output import last_lines
from spotctl.run.work import resume_state, training_nodes
from spotctl.run.work.training_nodes import HOST, NODE_PORT, PORT, TrainingNodes
from spotctl.run.work.workload import DataHere, Workload, WorkReport, checked, container_of

MODEL_FILE, CHECKPOINT_FILE, LOG_FILE = "model.npz", "checkpoint.npz", "iterations.jsonl"

NODE_PACKAGES = ("cloudpickle", "cryptography", "msgspec", "numpy", "scipy")
"""Packages that nodes of a training import besides our own code."""

MAX_STAGES = 16
"""Machines over which a model is split at most, if the job sets no limit."""

REPORT_EVERY = 1.0
"""Seconds between progress events; the iteration log has every clock."""

LISTEN_SECONDS = 0.1
"""How long a turn waits for messages of the controller."""

HEARTBEAT_SECONDS = 5.0
"""Seconds without a sign of life until a node counts as lost: long, because machines share this
computer's processors and start while others work."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class TrainingWorkload(Workload):
    """One training. Its controller runs next to this process and keeps its state in the rendezvous
    folder.

    The trainer's code runs in the nodes, and once in a process of its own; never in this one.
    """

    def __init__(
        self,
        spec: JobSpec,
        environment: RunEnvironment,
        least_stages: Callable[[], int] = lambda: 1,
    ) -> None:
        """`least_stages` is asked how many machines, at least, hold the model of a pipeline."""
        self._environment = environment
        self._least_stages = least_stages
        self._spec = spec
        self._setup = spec.setup or ""
        self._container = container_of(spec)
        self._data = (
            {data_variable(name): place for name, place in spec.data.items()}
            if environment.rented
            else {}
        )

        # All machines of a rented training are in one region, and the runner is on one of them, or
        # far from any.
        home = zip(spec.resources.clouds, spec.resources.regions, strict=False)
        near = next((copies_near(spec, *place) for place in home if spec.data_buckets), {})
        self._data_here = DataHere(self._data, environment.cache, environment.identity, near)
        assert isinstance(spec.program, Training)
        self._program = spec.program
        self._job = training_job(spec)
        self._span = self._job.stopping.seconds

        if spec.is_local and self._span is not None:
            # This process ends it, by the market's clock; the controller only if this process is
            # gone for long.
            longest = self._span * (1 + MAX_STANDING_SECONDS * spec.local.speed / 3600)
            self._job = replace(self._job, stopping=replace(self._job.stopping, seconds=longest))

        self._most = (spec.resources.reliable.machines or 0) + (
            spec.resources.machines.most or MAX_STAGES
        )
        self._secret = resume_state.secret_of(environment.rendezvous)
        self._nodes = TrainingNodes(environment)
        self._earlier_machines, self._earlier_clock = resume_state.earlier(environment.rendezvous)
        self._speed = environment.provider.speed
        self._controller: AttachedJob | None = None
        self._lost: set[str] = set()
        self._warned: dict[str, int] = {}
        self._crashes = CrashGuard()
        self._given_up = ""
        self._last_exit = ""
        self._no_container = ""
        self._exited_before: set[str] = set()
        self._latest: Progressed | None = None
        self._machines: dict[str, str] = {}
        """The machines by the names of their nodes."""
        self._timesheet = Timesheet(self._speed, lambda node: self._machines.get(node, node))
        self._reported_at = 0.0
        self._seconds = 0.0
        self._noted_at: int | None = None
        self._share_done: float | None = None
        self._last_clocks: list[Iteration] = []
        """The latest one, if there is one."""
        self._last_line: Mapping[str, Any] | None = None
        self._unfinished: Mapping[str, Any] | None = None
        self._stays_here = False

    def payload(self, order: RentIntended) -> Payload:
        """A process that joins the training as a node."""
        paths = self._environment.on_machine
        python = paths.python if self._container is None else "python3"
        node = self._nodes.command(python, order.market.cloud, patient=bool(self._data))
        node += ["--reliable"] if order.reliable else []

        if self._container is None:
            command = [*BEHIND_SETUP, *node] if self._setup else node
        else:
            passed = (
                *self._container.variables,
                *self._environment.variables,
                *self._data,
                SECRET_VARIABLE,
            )
            container = replace(
                self._container, variables=passed, folders=(paths.cache,) if self._data else ()
            )
            inside = [*BEHIND_SETUP, *checked(node)] if self._setup else checked(node)
            command = container.runs(paths.python, inside)

        # Machines of this computer share its processors; rented ones have their own.
        variables = {
            **({} if self._environment.rented else _ONE_THREAD),
            **self._environment.variables,
        }

        # Other users of a machine read command lines, and no variables.
        variables |= {SETUP_VARIABLE: self._setup} if self._setup else {}
        if self._data:
            # The machine first copies the job's data.
            near = copies_near(self._spec, order.market.cloud, order.market.region)
            task = NodeTask("node", cache=paths.cache, data=self._data, near=near)
            command = [paths.python, "-P", "-c", NODE, "become", *command]
            variables |= {TASK_VARIABLE: task.to_json()}

        return Payload(
            "node", tuple(command), variables, paths.folder, term_at_notice=False, grace_seconds=0.0
        )

    def supplies(self) -> MachineSupplies:
        """The job's folder and secrets, and what a node needs to take part; a rented one only under
        its own name.
        """
        environment = self._environment
        secrets = self._environment.secrets
        packages = (*NODE_PACKAGES, *store_packages(self._spec))
        if not environment.rented:
            # The machines are processes of this user.
            return MachineSupplies(
                {**secrets, SECRET_VARIABLE: self._secret.hex()}, environment.workdir
            )

        # The machines need the controller's port of this computer.
        port = self._nodes.port
        reach = () if port is None else (ReverseTunnel(PORT, HOST, port),)
        own = (environment.workdir, reach, packages, (NODE_PORT,), self._own_secrets)
        return MachineSupplies(secrets, *own)

    def _own_secrets(self, machine: str) -> Mapping[str, str]:
        """The credentials of the node on a machine."""
        return {
            SECRET_VARIABLE: credentials_of(self._secret, self._nodes.name(machine)).encoded().hex()
        }

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:
        """Reports changes of machines to the controller, and listens to it for a moment."""
        if state.stopping is not None:
            self._save_unfinished()
            return WorkReport()

        self._machines = {self._nodes.name(machine): machine for machine in state.machines}
        try:
            idle = self._advance(state, machines, now)
            if self._last_line is not None:
                return self._done(self._last_line)
        except (AgentError, AgileMLError, PricingDataError) as error:
            return WorkReport(self._latest, FAILED, str(error))
        except OSError as error:
            path = error.filename or self._environment.results
            return WorkReport(self._latest, FAILED, f"{path}: {error.strerror or error}")

        if self._given_up or self._no_container:
            message = (
                f"{self._crashes.in_one_clock} nodes exited unexpectedly; the last was "
                f"{self._last_exit}"
            )
            return WorkReport(outcome=FAILED, message=self._no_container or message)

        # The latest clock, if the last progress event was long enough ago.
        progress = None
        at = time.monotonic()
        if self._latest is not None and at - self._reported_at >= REPORT_EVERY:
            progress = self._latest
            self._latest = None
            self._reported_at = at
        return WorkReport(progress, idle_machines=idle, share_done=self._share_done)

    def facts(self) -> Mapping[str, Any]:
        """The figures of a finished training and the path of its model; else the path of the newest
        checkpoint.
        """
        if self._last_line is None:
            unfinished = self._unfinished or {}
            is_saved = "checkpoint_clock" in unfinished
            if is_saved:
                return {**unfinished, "checkpoint": self._named(CHECKPOINT_FILE)}
            return unfinished

        # The run counts evictions itself; the engine counts only those that it noticed.
        facts = {
            name: value
            for name, value in self._last_line.items()
            if name not in ("evictions", "failures")
        }

        return {**facts, "model": self._named(MODEL_FILE)}

    def store(self, outcome: str) -> None:  # noqa: ARG002 - a training that failed has a checkpoint
        """Copies the model, or the newest checkpoint, to the object store that the job names."""
        results = self._environment.results
        published = self._environment.published
        if not published or not any(
            (results / name).exists() for name in (MODEL_FILE, CHECKPOINT_FILE)
        ):
            return

        try:
            deliver(results, published, self._environment.identity)
            self._stays_here = False
        except AgentError as error:
            self._stays_here = True
            raise TransferFailed(
                f"its results are in {results} on the computer of its runner: {error}"
            ) from error

    def close(self) -> None:
        """Ends the controller."""
        if self._controller is not None:
            self._controller.close()

    def _advance(self, state: RunState, machines: Sequence[Machine], now: int) -> tuple[str, ...]:
        """Goes on with a training that is not over; returns machines that will do nothing any
        more."""
        if self._controller is None:
            data = self._data_here.copies()
            if data is None:
                return ()
            self._environment.results.mkdir(parents=True, exist_ok=True)
            path = self._environment.results / LOG_FILE
            if not state.orders:
                # The file of an earlier run of the job.
                path.unlink(missing_ok=True)
            lines = _lines_of(path)
            self._seconds = sum(line.get("seconds", 0.0) for line in lines)
            if lines and "model_sha256" in lines[-1]:
                # An earlier process of the run has finished the training.
                self._last_line = lines[-1]
                return ()
            done_before = max((line.get("clock", 0) for line in lines), default=0)
            self._controller = self._start_controller(state, machines, done_before, data)

        idle = self._report_machines(self._controller, state, machines, now)
        until = time.monotonic() + LISTEN_SECONDS
        while self._last_line is None and (left := until - time.monotonic()) > 0:
            trained = self._controller.turn(left)
            client = self._controller.client
            self._crashes.advance(client.last_clock, client.progress)
            if trained is not None:
                # The model is written first, then the line that reports it.
                save_model(trained.model, self._environment.results / MODEL_FILE)
                path = self._environment.results / LOG_FILE
                redone = redone_fields(
                    event for clock in _lines_of(path) for event in clock["events"]
                )
                line = last_line_of(trained) | redone
                line |= (
                    share_fields(self._last_clocks)
                    if self._job.settings.stragglers.wait_policy
                    else {}
                )
                _append(path, line)
                self._last_line = line

        return idle

    def _start_controller(
        self,
        state: RunState,
        machines: Sequence[Machine],
        done_before: int,
        data: Mapping[str, str],
    ) -> AttachedJob:
        environment = self._environment
        variables = {**environment.variables, **environment.secrets, **data}
        # Another process loads the user's code to learn the shape of the model.
        plan: RunnableJob
        if self._program.parallel is None:
            shape = isolated_shape_of(self._job, environment.workdir, variables)
            self._job = replace(self._job, stopping=self._job.stopping.ending(shape.clocks))
            plan = PreparedJob(self._job, shape)
        else:
            parallel = self._program.parallel
            if parallel.stages is None and parallel.elastic.nodes is None:
                parallel = replace(parallel, stages=self._least_stages())
            plan = training_nodes.prepared(
                self._job, parallel, self._most, environment.workdir, variables
            )

        last = max(
            done_before, 0 if state.progress is None else state.progress.clock, self._earlier_clock
        )
        # The controller listens for nodes of other computers.
        port = self._nodes.port
        listen = None if port is None else TcpAddress(HOST, port)
        controller = AttachedJob(
            plan, environment.rendezvous, self._secret, self._note_iteration, last, listen=listen
        )
        for machine in self._earlier_machines:
            controller.lose(self._nodes.name(machine))

        # Nodes that exited while no process attended to the run may have been told to leave.
        self._exited_before = {machine.id for machine in machines if machine.exit_code is not None}
        return controller

    # -- from the machines to the controller -------------------------------------------------------

    def _report_machines(
        self, controller: AttachedJob, state: RunState, machines: Sequence[Machine], now: int
    ) -> tuple[str, ...]:
        """Reports warned and lost machines; returns machines whose node has exited."""
        for held in state.machines.values():
            deadline = min(
                (at for at in (held.warned_until, state.leaves_at(held)) if at is not None),
                default=None,
            )
            if not held.alive:
                self._lose(controller, held.id)
            elif (
                deadline is not None
                and held.id not in self._lost
                and self._warned.get(held.id) != deadline
            ):
                self._warned[held.id] = deadline
                controller.warn(
                    self._nodes.name(held.id), max(deadline - now, 0) / SECOND / self._speed
                )

        for machine in machines:
            known = state.machines.get(machine.id)
            if (
                machine.state is MachineState.RUNNING
                and not machine.work
                and known is not None
                and known.alive
            ):
                # It booted without a node.
                payload = self.payload(state.orders[known.allocation])
                # A machine that does not answer is asked again in the next turn.
                with suppress(NotFound, Throttled, Unanswered):
                    self._environment.provider.link(known.id).assign(payload)

        exited = [
            machine
            for machine in machines
            if machine.exit_code is not None and machine.id in state.machines
        ]

        useless = [
            machine.id for machine in exited if self._exited_alone(controller, state, machine)
        ]
        for held in state.alive:
            if self._nodes.name(held.id) in controller.expelled and held.id not in useless:
                # Its node does not do what a node does: the machine may be another's now.
                self._lose(controller, held.id)
                useless.append(held.id)

        return tuple(useless)

    def _exited_alone(self, controller: AttachedJob, state: RunState, machine: Machine) -> bool:
        """Whether a node has exited although its machine is not being evicted or returned."""
        if machine.id in self._lost or not state.machines[machine.id].alive:
            return False

        self._lose(controller, machine.id)
        if machine.id in self._warned:
            return False

        if machine.id not in self._exited_before:
            output = last_lines(self._environment, machine.id)
            self._last_exit = f"{machine.id} with status {machine.exit_code}: {output}"
            failed = Gone(machine.id, machine.exit_code, output)
            running = [held.id for held in state.alive]
            self._given_up = self._given_up or self._crashes.add(failed, running)
            if machine.exit_code == NO_CONTAINER:
                self._no_container = self._last_exit

        return True

    def _lose(self, controller: AttachedJob, name: str) -> None:
        if name not in self._lost:
            self._lost.add(name)
            controller.lose(self._nodes.name(name))

    # -- from the controller -----------------------------------------------------------------------

    def _note_iteration(self, iteration: Iteration) -> None:
        at = self._environment.provider.now()
        if self._spec.is_local and self._noted_at is not None:
            # While it was done, the market's clock may have stood.
            iteration = replace(iteration, seconds=(at - self._noted_at) / SECOND / self._speed)

        self._noted_at = at
        self._latest = self._timesheet.progressed(iteration, at, self._latest)
        _append(self._environment.results / LOG_FILE, line_of(iteration))
        self._last_clocks = [iteration]
        self._seconds += iteration.seconds
        stop = self._job.stopping

        # The finished share of the work is unknown where the loss decides when to stop.
        if stop.loss is None and stop.converged is None:
            shares = [] if stop.clocks is None else [iteration.clock / stop.clocks]
            shares += [] if self._span is None else [self._seconds / self._span]
            self._share_done = min(max(shares), 1.0)

        if self._span is not None and self._seconds >= self._span and self._controller is not None:
            self._controller.stop(finish=True)

    def _named(self, file: str) -> str:
        """The final location of a result."""
        published = "" if self._stays_here else self._environment.published
        if published:
            return f"{published.rstrip('/')}/{file}"
        return str(self._environment.results / file)

    def _save_unfinished(self) -> None:
        """Saves the newest checkpoint of a training that ends early, before its machines are
        returned.
        """
        if self._last_line is not None or self._unfinished is not None:
            return

        path = self._environment.results / CHECKPOINT_FILE
        try:
            newest = newest_checkpoint(self._environment.rendezvous)
            if newest is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                save_model(newest[1], path)
            self._unfinished = {} if newest is None else {"checkpoint_clock": newest[0]}
        except (AgentError, AgileMLError, PricingDataError, OSError) as error:
            # The machines are returned all the same.
            self._unfinished = {"checkpoint": None, "checkpoint_error": str(error)}

    def _done(self, line: Mapping[str, Any]) -> WorkReport:
        counters = (line[f"updates_{what}"] for what in ("sent", "applied", "lost", "doubled"))
        try:
            check_nothing_lost(Counters(*counters))
        except AgileMLError as error:
            return WorkReport(self._latest, FAILED, str(error))

        # Logs of earlier versions have no final loss.
        loss = line.get("loss")
        reached = f"{line['clocks']} clocks" + ("" if loss is None else f", loss {loss:.4g}")
        again = line.get("redone_clocks", ())
        return WorkReport(
            self._latest,
            DONE,
            f"{reached}; clocks {spans_text(again)} done again" if again else reached,
        )


def training_job(spec: JobSpec) -> TrainingJob:
    """The job for the engine: it starts with the reliable machines, or the first of a job without
    any; all others join later."""
    program = spec.program
    assert isinstance(program, Training)
    stop = program.stop

    # On the local market, a job's times are the market's, as its prices and its deadline are.
    second = SECOND * (spec.local.speed if spec.is_local else 1.0)
    # A file is named relative to the job's folder, wherever the job is launched.
    app = str(spec.workdir / program.app) if split(program.app)[0] else program.app
    source = TrainerSource(app, program.args, next(iter(program.trainer), ""))
    # A framework's trainer knows its last clock, once it is loaded.
    clocks = MAX_CLOCKS if program.trainer and stop == Stop() else stop.clocks
    seconds = None if stop.span is None else stop.span / second
    converged = None if stop.converged is None else Convergence(stop.converged)
    stopping = Stopping(clocks, seconds, stop.loss, converged)
    stragglers = Stragglers(**asdict(program.stragglers))
    settings = JobSettings(deterministic=True, stragglers=stragglers, wire=program.wire)

    reliable = spec.resources.reliable.machines or 0
    others = 0 if reliable else 1
    return TrainingJob(
        source, reliable, others, stopping, settings, heartbeat_timeout=HEARTBEAT_SECONDS
    )


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def _lines_of(path: Path) -> list[dict[str, Any]]:
    """The iteration log of an earlier process; a line without a newline is a torn write, and is
    removed.
    """
    if not path.exists():
        return []

    complete = [
        line
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]

    with atomic_write(path) as part:
        part.write_text("".join(complete), encoding="utf-8")
    return [json.loads(line) for line in complete]
