"""An elastic pipeline in one process: the real controller and nodes, with messages in any order that links allow."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agileml.errors import AgileMLError, JobFailed
from agileml.pipeline.elastic.controller import ElasticController, Instructions
from agileml.pipeline.elastic.messages import (
    CopyLayers,
    FramesLost,
    NodeInstruction,
    NodeReport,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.run.node import PipelineFrame, PipelineNode, PipelineTask
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Broken, Leave

SimulatedMessage = NodeInstruction | Leave | PipelineFrame | NodeReport | Broken


@dataclass(frozen=True)
class PipelineFault:
    """At a delivered message, nodes join, are warned, are killed, or lose their links to the others for a moment."""

    at: int
    kind: str
    node: str


class SimulatedPipeline:
    """Delivers messages one by one: each link in order, links in random order."""

    def __init__(
        self,
        task: PipelineTask,
        controller: ElasticController,
        nodes: Sequence[str],
        faults: Sequence[PipelineFault] = (),
        seed: int = 0,
    ) -> None:
        self.controller = controller
        self._task, self._draw = task, random.Random(seed)  # noqa: S311 - chooses an order, not a secret
        self._faults = sorted(faults, key=lambda fault: fault.at, reverse=True)
        self._nodes: dict[str, PipelineNode] = {}
        self._links: dict[tuple[str, str], list[SimulatedMessage]] = {}
        self.copies: dict[int, dict[int, PipelineFrame]] = {}
        """Frames with the state of layers, by batch and layer."""
        self.delivered = 0
        for node in nodes:
            self._join(node)

    def run(self) -> None:
        """Trains to the end, after which `copies` has all layers."""
        while not self.controller.finished or self._links:
            while self._faults and (self._faults[-1].at <= self.delivered or not self._links):
                self._inject(self._faults.pop())
            if not self._links:
                if self.controller.finished:
                    break
                raise AgileMLError(f"the pipeline is stuck in batch {self.controller.batch}: no messages are left")
            self._deliver()

    def _inject(self, fault: PipelineFault) -> None:
        if fault.kind == "join":
            self._join(fault.node)
        elif fault.node in self._nodes:
            if fault.kind == "warn":
                self._act(self.controller.warn(fault.node, self._now))
            elif fault.kind == "cut":
                self._cut(fault.node)
            else:
                self._kill(fault.node)

    def _join(self, name: str) -> None:
        def send(node: str, frame: PipelineFrame) -> None:
            self._put(name, node, frame)

        report = partial(self._put, name, CONTROLLER)
        self._nodes[name] = PipelineNode(name, self._task, send, report, self)
        self._act(self.controller.join(name, self._now))

    def _kill(self, name: str) -> None:
        """Frames that the node has sent may still arrive; frames for the node do not."""
        del self._nodes[name]
        self._links = {link: queue for link, queue in self._links.items() if link[1] != name}
        self._act(self.controller.lose(name, self._now))

    def _cut(self, name: str) -> None:
        """Frames on the way from and to the node are lost, and both ends of each link notice."""
        cut = {link for link in self._links if name in link and CONTROLLER not in link}
        self._links = {link: queue for link, queue in self._links.items() if link not in cut}
        # A node that is gone notices nothing, though its frames may still have been on their way.
        for node in sorted({node for link in cut for node in link} & self._nodes.keys()):
            self._put(node, CONTROLLER, FramesLost(node, self._nodes[node].epoch))

    @property
    def _now(self) -> float:
        return float(self.delivered)

    def _act(self, instructions: Instructions) -> None:
        for node, instruction in instructions:
            self._put(CONTROLLER, node, instruction)

    def _put(self, source: str, target: str, message: SimulatedMessage) -> None:
        if target == CONTROLLER or target in self._nodes:
            self._links.setdefault((source, target), []).append(message)

    def _deliver(self) -> None:
        link = self._draw.choice(list(self._links))
        message = self._links[link].pop(0)
        if not self._links[link]:
            del self._links[link]
        self.delivered += 1
        if link[1] == CONTROLLER:
            self._at_controller(message)
        elif isinstance(message, PipelineFrame):
            self._nodes[link[1]].receive(message)
        elif isinstance(message, Leave):
            del self._nodes[link[1]]
            self._links = {other: queue for other, queue in self._links.items() if other[1] != link[1]}
        elif isinstance(message, TakeSeat | RunBatches | CopyLayers):
            self._nodes[link[1]].instruct(message)

    def _at_controller(self, message: SimulatedMessage) -> None:
        if isinstance(message, Broken):
            raise JobFailed(message.message)
        if isinstance(message, NodeReport):
            self._act(self.controller.report(message, self._now))

    # -- the store of the nodes ----------------------------------------------------------------------------------------

    def save(self, frame: PipelineFrame, then: Callable[[], None]) -> None:
        """Saves at once; the report that says so is a message."""
        _, layer, batch = frame.key
        self.copies.setdefault(batch, {})[layer] = frame
        for old in [number for number in self.copies if number < self.controller.backup]:
            del self.copies[old]
        then()

    def load(self, layer: int, batch: int) -> PipelineFrame | None:
        """A saved layer."""
        return self.copies[batch][layer]
