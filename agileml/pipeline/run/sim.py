"""A pipeline on simulated machines: the real controller and nodes, with messages in any order that links allow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agileml.core.events import ControllerSettings
from agileml.engines.sim.job import JobSimulation, Machines
from agileml.engines.sim.network import Network
from agileml.pipeline.elastic.control import PipelineControl, PipelineProgress
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.elastic.messages import FramesLost
from agileml.pipeline.run.node import PipelineFrame, PipelineNode, PipelineTask
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Leave

NOTICE_SECONDS = 1.0
"""Virtual seconds between a warning and the end of a machine; a thousand times as long as a message travels."""

MACHINES = Machines(loading=0.0, network=Network(jitter=0.001))
"""Only messages take time, each another one."""


@dataclass(frozen=True)
class PipelineFault:
    """At a delivered message, nodes join, are warned, are killed, or lose their links to the others for a moment."""

    at: int
    kind: str
    node: str


class PipelineSimulation(JobSimulation[PipelineNode, PipelineControl]):
    """The nodes' layers are saved at once; the report that says so is a message."""

    def __init__(self, task: PipelineTask, settings: ElasticSettings, nodes: Sequence[str], seed: int = 0) -> None:
        self._task = task
        self.saved: dict[int, dict[int, PipelineFrame]] = {}
        """Frames with the state of layers, by batch and layer."""
        rules = ControllerSettings(0, len(nodes), settings.batches)
        super().__init__(rules, partial(PipelineControl.resumed, rules, settings), MACHINES, seed)
        for node in nodes:
            self.join(reliable=False, name=node)

    def train(self, faults: Sequence[PipelineFault] = ()) -> None:
        """Trains to the end, after which `saved` has all layers. Faults come early where nothing happens otherwise."""
        left = sorted(faults, key=lambda fault: fault.at, reverse=True)
        while self.result is None:
            while left and (left[-1].at <= self.messages.delivered or self.idle):
                self._inject(left.pop())
            self.advance()

    @property
    def progress(self) -> PipelineProgress:
        """The losses and plans so far, as the controller has reported them."""
        progress = PipelineProgress(self.controller.elastic.settings.batch)
        for iteration in self.log:
            progress.note(iteration)
        return progress

    def _inject(self, fault: PipelineFault) -> None:
        match fault.kind:
            case "join":
                self.join(reliable=False, name=fault.node)
            case "warn":
                self.warn(fault.node, NOTICE_SECONDS)
            case "kill":
                self.kill(fault.node)
            case "cut" if fault.node in self.nodes:
                for other in [node for node in self.nodes if node != fault.node]:
                    self.cut_link((fault.node, other), lambda _: True)

    # -- the nodes and their controller --------------------------------------------------------------------------------

    def _start(self, name: str) -> PipelineNode:
        report = partial(self.messages.send, name, CONTROLLER)
        return PipelineNode(name, self._task, partial(self._send, name), report, self)

    def _send(self, name: str, to: str, frame: PipelineFrame) -> None:
        if self._gaps.get((name, to)) != self.nodes[name].epoch:
            self.messages.send(name, to, frame)

    def _deliver(self, sender: str, receiver: str, message: object) -> None:
        if receiver == CONTROLLER:
            self._control(message, sender)
        elif receiver in self.nodes and isinstance(message, Leave):
            self._leave(receiver)
        elif receiver in self.nodes:
            self.nodes[receiver].handle(message)

    def cut_link(self, ends: tuple[str, str], lose: Callable[[object], bool]) -> None:
        super().cut_link(ends, lose)
        for node in ends:
            self.messages.send(node, CONTROLLER, FramesLost(node, self.nodes[node].epoch))

    # -- the store of the nodes ----------------------------------------------------------------------------------------

    def save(self, frame: PipelineFrame, then: Callable[[], None]) -> None:
        """Saves a layer."""
        _, layer, batch = frame.key
        self.saved.setdefault(batch, {})[layer] = frame
        for old in [number for number in self.saved if number < self.controller.elastic.backup]:
            del self.saved[old]
        then()

    def load(self, layer: int, batch: int) -> PipelineFrame | None:
        """A saved layer."""
        return self.saved[batch][layer]
