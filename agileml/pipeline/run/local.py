"""An elastic pipeline in one call: `train_local` on processes of this computer, `train_simulated`
in this process.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from agileml.core.events import Iteration
from agileml.core.members import Members
from agileml.engines.chaos import (
    QUIET,
    WARNING_SECONDS,
    Act,
    Evict,
    Join,
    RunningMachine,
)
from agileml.engines.local.fleet import (
    CONTROLLER_MEMORY,
    SECRET_BYTES,
    LocalFleet,
    Processes,
    run_job,
)
from agileml.engines.sim.fleet import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.errors import BadArgument, JobFailed, check_whole
from agileml.job import GaveUp, Stopping, TrainingJob
from agileml.pipeline.elastic.control import PipelineProgress
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.model.base import PipelineModel, UpdateRule, named_arrays
from agileml.pipeline.run.fleet_job import (
    ModelSource,
    PreparedPipeline,
    copied_source,
    prepare_pipeline,
)
from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline, model_of_layers, result_of
from agileml.pipeline.schedule.schedules import FLUSHING
from agileml.protocol.messages import Tally, Version
from agileml.runtime.blob_store import UnreadableBlob
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.controller_process import Memory
from agileml.runtime.ground import replaced
from agileml.runtime.output import show
from agileml.runtime.rendezvous import FolderRendezvous

HANG_SECONDS = 30.0
"""A node that makes no progress for this long is replaced."""


_SILENT_SECONDS = 10.0
"""The computer may be busy, and a process that ends is noticed at once."""


_ONLY_MESSAGES_TAKE_TIME = Machines(loading=0.0, network=Network(jitter=0.001))
"""Each another one."""


class PipelineStopped(JobFailed):
    """The training cannot go on. `trained` has the newest complete copy of its weights, of
    `update`.
    """

    def __init__(self, why: str, trained: TrainedPipeline, update: int) -> None:
        super().__init__(why)
        self.trained = trained
        self.update = update


def train_local(
    model: PipelineModel,
    optimizer: UpdateRule,
    plan: PipelinePlan,
    nodes: int,
    *,
    faults: FaultScript | None = None,
    checkpoint: Path | None = None,
    hang_timeout: float = HANG_SECONDS,
) -> TrainedPipeline:
    """Trains on processes of this computer, which `faults` may warn, kill and add.

    A node that makes no progress for `hang_timeout` seconds is killed, and another one takes its
    place. With a checkpoint file the run survives its own process: a new process goes on from the
    file. Nodes that `faults` kill are not replaced: only `faults` add nodes. PipelineStopped: the
    training cannot go on after its first copy of all layers.
    """
    prepared = _prepared(model, optimizer, plan, nodes, hang_timeout)
    with closing(Processes()) as processes:
        rendezvous = FolderRendezvous(processes.folder, secrets.token_bytes(SECRET_BYTES))
        run = _LocalRun(prepared, rendezvous, faults or FaultScript([]), checkpoint)
        done = run.resume()
        if done >= plan.batches:
            return run.trained(done)
        fleet = LocalFleet(prepared, processes, rendezvous)
        try:
            result = run_job(fleet, rendezvous, prepared, run.faults, run.note, show)
        except GaveUp as error:
            update = error.trained.clocks
            run.keep(update)
            raise PipelineStopped(str(error), run.trained(update), update) from error
        run.keep(result.clocks)
        if result.interrupted:
            raise KeyboardInterrupt
        return run.trained(result.clocks)


def train_simulated(
    model: PipelineModel, optimizer: UpdateRule, plan: PipelinePlan, nodes: int
) -> TrainedPipeline:
    """Trains in this process, on simulated machines."""
    check_whole("batches", plan.batches, 1)
    prepared = _prepared(model, optimizer, plan, nodes)
    progress = PipelineProgress(prepared.settings)
    trained = SimulatedEngine(_ONLY_MESSAGES_TAKE_TIME).run(prepared, QUIET, progress.note)
    return result_of(progress, trained.model, trained.clocks)


def _prepared(
    model: PipelineModel,
    optimizer: UpdateRule,
    plan: PipelinePlan,
    nodes: int,
    hang_timeout: float = HANG_SECONDS,
) -> PreparedPipeline:
    check_whole("nodes", nodes, 1)
    job = TrainingJob(
        copied_source(replace(model, optimizer=optimizer)),
        0,
        nodes,
        Stopping(clocks=plan.batches),
        heartbeat_timeout=_SILENT_SECONDS,
        hang_timeout=hang_timeout,
    )

    model_source = ModelSource(optimizer, plan.scheme, plan.batch, plan.recompute)
    prepared = prepare_pipeline(job, model_source, plan)
    if nodes < prepared.least_nodes:
        raise BadArgument(
            f"nodes is {nodes}: {plan.scheme} needs at least {prepared.least_nodes} with these "
            "stages and microbatches"
        )

    return prepared


@dataclass
class FaultScript:
    """Kills or warns the node of the first seat, or adds a node, once each update is reached."""

    faults: list[tuple[int, str]]
    seated: tuple[str, ...] = ()
    """The nodes of the present epoch, by seat."""

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        staying = {machine.name for machine in machines if not machine.warned}
        nodes = [node for node in self.seated if node in staying]
        acts: list[Act] = []
        while self.faults and self.faults[0][0] <= clock and (nodes or self.faults[0][1] == "join"):
            _, kind = self.faults.pop(0)
            if kind == "join":
                acts.append(Join(1))
            elif kind == "kill":
                acts.append(Evict((nodes.pop(0),), None))
            else:
                acts.append(Evict((nodes.pop(0),), WARNING_SECONDS))

        return acts


def parse_faults(text: str) -> FaultScript:
    """The script of a text such as `kill 5, warn 9, join 12`."""
    faults = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        matched = _FAULT.fullmatch(part)
        if not matched:
            raise BadArgument(
                f"fault {part!r}: write kill, warn or join and the number of an update, such as "
                "'kill 5'"
            )
        faults.append((int(matched[2]), matched[1]))

    return FaultScript(sorted(faults))


_FAULT = re.compile(r"(kill|warn|join) (\d+)")


class _LocalRun:
    """Follows a run by what its controller reports, and keeps the checkpoint file current."""

    def __init__(
        self,
        prepared: PreparedPipeline,
        rendezvous: FolderRendezvous,
        faults: FaultScript,
        file: Path | None,
    ) -> None:
        self._settings = prepared.settings
        self._folder = rendezvous.folder
        self._file = file
        self._store = ModelCheckpoints(rendezvous.blobs)
        self.faults = faults
        self._progress = PipelineProgress(prepared.settings)
        self._kept = 0

    def resume(self) -> int:
        """Puts what is in the file where a restarted controller looks for it; returns the number of
        its updates.
        """
        if self._file is None or not self._file.exists():
            return 0

        losses, layers = load_checkpoint(self._file, self._settings)
        for layer, version in enumerate(layers):
            self._store.save(layer, version)
        self._progress.losses = losses
        self._kept = layers[0].clock

        with closing(Memory(self._folder / CONTROLLER_MEMORY)) as memory:
            memory.remember_decision([[k, loss] for k, loss in losses.items()])
            memory.remember(
                {**Members().record(), "epoch": 0, "checkpoint": self._kept, "logged": self._kept}
            )

        return self._kept

    def note(self, iteration: Iteration) -> None:
        self._progress.note(iteration)
        self.faults.seated = self._progress.history[-1].nodes
        for batch in self._store.complete(len(self._settings.layer_bytes)) if self._file else ():
            if batch <= iteration.clock:
                # The controller may just be deleting it, because there are later ones.
                with suppress(UnreadableBlob):
                    self.keep(batch)
                return

    def keep(self, batch: int) -> None:
        """Writes the state before a batch to the file, unless it has a later one."""
        if self._file is None or batch <= self._kept:
            return
        save_checkpoint(self._file, self._settings, self._progress.losses, self._layers(batch))
        self._kept = batch

    def trained(self, batch: int) -> TrainedPipeline:
        """The result after this many updates."""
        return result_of(self._progress, model_of_layers(self._layers(batch)), batch)

    def _layers(self, batch: int) -> list[Version]:
        """The layers before a batch."""
        return [self._store.load(layer, batch) for layer in range(len(self._settings.layer_bytes))]


def save_weights(path: Path, trained: TrainedPipeline) -> None:
    """Writes the model of a training as `spotctl launch` does: weights and buffers of all layers,
    by name.
    """
    with path.open("wb") as file:
        np.savez(file, **named_arrays(trained.weights, trained.buffers))  # type: ignore[arg-type]


_ABOUT = "about"


def save_checkpoint(
    path: Path, settings: ElasticSettings, losses: Mapping[int, float], layers: Sequence[Version]
) -> None:
    """Replaces the file in one step. The layers are those before a batch."""
    batch = layers[0].clock
    heads: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for layer, version in enumerate(layers):
        head, *state = version.state
        count, buffers, *numbers = head.tolist()
        heads[str(layer)] = numbers, (count, buffers)
        arrays |= {f"{layer}/{i}": array for i, array in enumerate(state)}

    about = {
        "batch": batch,
        "as": _terms(settings),
        "losses": {str(k): loss for k, loss in losses.items() if k < batch * settings.batch},
        "layers": heads,
    }

    arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)

    with replaced(path) as new, new.open("wb") as file:
        np.savez(file, **arrays)


def _terms(settings: ElasticSettings) -> str:
    """The settings on which the result depends; flushing schemes count as one."""
    scheme = "flush" if settings.scheme in FLUSHING else settings.scheme
    return f"{scheme} with {settings.batch} microbatches"


def load_checkpoint(
    path: Path, settings: ElasticSettings
) -> tuple[dict[int, float], list[Version]]:
    """The losses and the layers of a file. Raises BadArgument if it is of another run."""
    layers: dict[int, Version] = {}
    try:
        with np.load(path) as file:
            about = json.loads(file[_ABOUT].tobytes())
            batch = int(about["batch"])
            for name, (numbers, counts) in about["layers"].items():
                names = [key for key in file.files if key.startswith(f"{name}/")]
                head = np.array([*counts, *numbers], np.int64)
                arrays = [file[f"{name}/{i}"] for i in range(len(names))]
                layers[int(name)] = Version(batch, Tally(0, 0), [head, *arrays])
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise BadArgument(
            f"checkpoint {path}: cannot be read ({error}); remove it to start from the beginning"
        ) from None

    if len(layers) != len(settings.layer_bytes):
        raise BadArgument(
            f"checkpoint {path} belongs to a model of {len(layers)} layers; remove it or name "
            "another"
        )
    if about.get("as") != _terms(settings):
        raise BadArgument(
            f"checkpoint {path} was written by {about.get('as', 'an older version')}, and this run "
            "is"
            f" {_terms(settings)}: use the same scheme and number of microbatches, or name another "
            "file"
        )

    losses = {int(k): loss for k, loss in about["losses"].items()}
    return losses, [version for _, version in sorted(layers.items())]
