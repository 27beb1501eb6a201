"""`train_local`: an elastic pipeline on processes of this computer, in one call, also with faults."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agileml.checks import check_whole
from agileml.core.events import Iteration
from agileml.core.members import Members
from agileml.engines.chaos import WARNING_SECONDS, Act, Evict, Join, KillNodes, RunningMachine
from agileml.engines.local.fleet import CONTROLLER_MEMORY, SECRET_BYTES, LocalFleet, run_job
from agileml.engines.local.processes import Processes
from agileml.errors import BadArgument, JobFailed
from agileml.job import GaveUp, Stopping, TrainingJob
from agileml.pipeline.elastic.control import PipelineProgress
from agileml.pipeline.model.arrays import named_arrays
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.run.fleet_job import ModelSource, PreparedPipeline, copied_source, prepare_pipeline
from agileml.pipeline.run.node import PipelineFrame
from agileml.pipeline.run.saved_layers import (
    PipelineCheckpoint,
    layer_frame,
    load_checkpoint,
    save_checkpoint,
    version_of,
)
from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline, check_nodes, result_of
from agileml.runtime.blob_store import UnreadableBlob
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.controller_process import Memory
from agileml.runtime.output import show
from agileml.runtime.rendezvous import FolderRendezvous

HANG_SECONDS = 30.0
"""A node that makes no progress for this long is replaced."""


_SILENT_SECONDS = 10.0
"""The computer may be busy, and a process that ends is noticed at once."""


class PipelineStopped(JobFailed):
    """The training cannot go on. `trained` has the newest complete copy of its weights, of `update`."""

    def __init__(self, why: str, trained: TrainedPipeline, update: int) -> None:
        super().__init__(why)
        self.trained, self.update = trained, update


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

    A node that makes no progress for `hang_timeout` seconds is killed, and another one takes its place. With a
    checkpoint file the run survives its own process: a new process goes on from the file.
    PipelineStopped: the training cannot go on after its first copy of all layers.
    """
    check_whole("nodes", nodes, 1)
    job = TrainingJob(
        copied_source(replace(model, optimizer=optimizer)),
        0,
        nodes,
        Stopping(clocks=plan.batches),
        heartbeat_timeout=_SILENT_SECONDS,
        hang_timeout=hang_timeout,
    )
    prepared = prepare_pipeline(job, ModelSource(optimizer, plan.scheme, plan.batch, plan.recompute), plan)
    check_nodes(nodes, prepared.settings)
    with closing(Processes()) as processes:
        rendezvous = FolderRendezvous(processes.folder, secrets.token_bytes(SECRET_BYTES))
        run = _LocalRun(prepared, rendezvous, faults or FaultScript([]), checkpoint)
        if (done := run.resume()) >= plan.batches:
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
                acts.append(KillNodes((nodes.pop(0),)))
            else:
                acts.append(Evict((nodes.pop(0),), WARNING_SECONDS))
        return acts


def parse_faults(text: str) -> FaultScript:
    """The script of a text such as `kill 5, warn 9, join 12`."""
    faults = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        matched = _FAULT.fullmatch(part)
        if not matched:
            raise BadArgument(f"fault {part!r}: write kill, warn or join and the number of an update, such as 'kill 5'")
        faults.append((int(matched[2]), matched[1]))
    return FaultScript(sorted(faults))


_FAULT = re.compile(r"(kill|warn|join) (\d+)")


class _LocalRun:
    """Follows a run by what its controller reports, and keeps the checkpoint file current."""

    def __init__(
        self, prepared: PreparedPipeline, rendezvous: FolderRendezvous, faults: FaultScript, file: Path | None
    ) -> None:
        self._settings, self._folder, self._file = prepared.settings, rendezvous.folder, file
        self._store = ModelCheckpoints(rendezvous.blobs)
        self.faults = faults
        self._progress = PipelineProgress(prepared.settings.batch)
        self._kept = 0

    def resume(self) -> int:
        """Puts what is in the file where a restarted controller looks for it; returns the number of its updates."""
        if self._file is None or not self._file.exists():
            return 0
        kept = load_checkpoint(self._file, self._settings)
        for layer, frame in enumerate(kept.layers):
            self._store.save(layer, version_of(frame))
        self._progress.losses, self._kept = dict(kept.losses), kept.batch
        with closing(Memory(self._folder / CONTROLLER_MEMORY)) as memory:
            memory.remember_decision([[k, loss] for k, loss in kept.losses.items()])
            memory.remember({**Members().record(), "epoch": 0, "checkpoint": kept.batch, "logged": kept.batch})
        return kept.batch

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
        kept = PipelineCheckpoint(batch, self._progress.losses, self._frames(batch))
        save_checkpoint(self._file, self._settings, kept)
        self._kept = batch

    def trained(self, batch: int) -> TrainedPipeline:
        """The result after this many updates."""
        return result_of(self._progress, self._frames(batch), batch)

    def _frames(self, batch: int) -> list[PipelineFrame]:
        """The layers before a batch."""
        return [layer_frame(layer, self._store.load(layer, batch)) for layer in range(len(self._settings.layer_bytes))]


def save_weights(path: Path, trained: TrainedPipeline) -> None:
    """Writes the model of a training as `spotctl launch` does: weights and buffers of all layers, by name."""
    with path.open("wb") as file:
        np.savez(file, **named_arrays(trained.weights, trained.buffers))  # type: ignore[arg-type]
