"""The process of a pipeline node in a fleet: the state machine of `node`, on the message loop that all nodes have.

A `ModelSource` says where the process has its model from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, cast, get_args

from agileml.apps.registry import TrainerSource
from agileml.params.layout import Params
from agileml.pipeline.builtin import model_factory
from agileml.pipeline.elastic.messages import (
    CopyLayers,
    FramesLost,
    NodeInstruction,
    NodeReport,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.run.node import PipelineFrame, PipelineNode, PipelineTask
from agileml.pipeline.run.saved_layers import SavedLayers, model_of_layers
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Broken, Hello, Leave, Ready, Version
from agileml.runtime.node_loop import NodeLoop
from agileml.runtime.remote_blobs import blobs_of
from agileml.runtime.role_specs import NodeRole
from agileml.runtime.vitals import Vitals
from agileml.transport import Connected, Lost, Rejected
from agileml.user_code import copy_of, original

_MICROBATCH = "microbatch"


_COPIED = "a model of the caller"


@dataclass(frozen=True)
class ModelSource:
    """How the model of a job's source is trained. A model with an optimizer keeps it."""

    optimizer: UpdateRule
    scheme: str
    batch: int
    recompute: bool = False

    def task(self, source: TrainerSource) -> PipelineTask:
        model = load_model(source)
        return PipelineTask(model, model.optimizer or self.optimizer, self.scheme, self.recompute)


def file_source(target: str, microbatch: int) -> TrainerSource:
    """The model of this name with `microbatch` samples per microbatch."""
    return TrainerSource(target, {_MICROBATCH: microbatch})


def copied_source(model: PipelineModel) -> TrainerSource:
    """A copy of a model."""
    return TrainerSource(_COPIED, copy_of(model))


def load_model(source: TrainerSource) -> PipelineModel:
    """The model of a source."""
    if source.target == _COPIED:
        return cast("PipelineModel", original(**cast("dict[str, Any]", source.arguments)))
    microbatch = source.arguments[_MICROBATCH]
    assert isinstance(microbatch, int)
    return model_factory(source.target)(microbatch)


PIPELINE_MESSAGES = (*get_args(NodeInstruction), *get_args(NodeReport), PipelineFrame)
"""Messages that only pipelines have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRole(NodeRole):
    """A machine that is a stage of a pipeline, or waits to become one."""

    work: ModelSource

    def process(self, vitals: Vitals) -> PipelineProcess:
        return PipelineProcess(self, vitals)

    def model(self, versions: Sequence[Version]) -> Params:
        return model_of_layers(versions)


log = logging.getLogger(__name__)


class PipelineProcess(NodeLoop[PipelineNode]):
    """Computes on the thread that handles messages: what it waits for is a message."""

    def __init__(self, role: PipelineRole, vitals: Vitals) -> None:
        super().__init__(role, vitals, PIPELINE_MESSAGES)
        self._task = role.work
        self._code = role.job.source.code()
        self._saved: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._store = SavedLayers(blobs_of(role.rendezvous), self._note_saved)
        self._warm_epoch = 0
        """The latest epoch in which the node has worked: the first work may take longer than later work."""

    def run(self) -> bool:
        try:
            return super().run()
        finally:
            self._store.close()

    def _begin(self) -> None:
        role = self._role
        with self._vitals.step(first=True):
            task = self._task.task(role.job.source)
        self._vitals.note_loaded(f"the model {role.job.source.target}")
        self._node = PipelineNode(role.name, task, self._send, self._report, self._store)

    def _greet(self) -> None:
        name = self._role.name
        self._mailbox.send(CONTROLLER, Hello(name, self._role.reliable, self._code))
        self._mailbox.send(CONTROLLER, Ready(name))

    def _handle(self, message: object) -> None:
        node = self._node
        assert node is not None
        match message:
            case Leave():
                log.info("leaving: %s", message.reason)
                self._leaving, self._given_up = True, message.reason if message.lost else ""
            case TakeSeat():
                # What was sent in earlier epochs is not wanted any more, and some peers may be gone.
                self._mailbox.begin_epoch()
                self._work(node.instruct, message, message.epoch)
            case RunBatches() | CopyLayers():
                self._work(node.instruct, message, message.epoch)
            case PipelineFrame():
                self._work(node.receive, message, message.epoch)

    def _work(self, do: Callable[..., None], message: object, epoch: int) -> None:
        first = self._warm_epoch != epoch
        with self._vitals.step(first=first, at=(epoch, 0)):
            do(message)
        if isinstance(message, RunBatches):
            self._warm_epoch = epoch
        self._mailbox.push()

    def _handle_link(self, event: Connected | Lost | Rejected) -> None:
        super()._handle_link(event)
        if isinstance(event, Lost) and event.peer != CONTROLLER and self._node is not None:
            self._report(FramesLost(self._role.name, self._node.epoch))

    def _send(self, to: str, frame: PipelineFrame) -> None:
        self._mailbox.send(to, frame)
        # The other node waits for it, and this one may compute for long.
        self._mailbox.push()

    def _report(self, report: NodeReport | Broken) -> None:
        self._mailbox.send(CONTROLLER, report)

    def _note_saved(self, then: Callable[[], None]) -> None:
        self._saved.put(then)
        self._mailbox.wake()

    def _end_turn(self) -> None:
        with suppress(Empty):
            while True:
                self._saved.get_nowait()()
