"""Executes a work order as a generator: frames are sent, and awaited by their key. No sockets, no clock."""

from dataclasses import dataclass

from agileml.errors import NotFinite
from agileml.pipeline.elastic.seats import WorkOrder, oldest_needed
from agileml.pipeline.model.base import Array, Weights, users_code
from agileml.pipeline.model.tensor_parts import Awaiting, SendFrame
from agileml.pipeline.run.stage_state import StageState
from agileml.pipeline.schedule.schedules import Pass, PipelineStep

ACTIVATION, GRADIENT, SUM, MEAN = "activation", "gradient", "sum", "mean"


@dataclass
class StageProgram:
    """Executes a work order. `losses` collects the loss of each microbatch at the last stage."""

    name: str
    work: WorkOrder
    state: StageState
    send: SendFrame
    keep: int
    """Versions before the newest that the scheme needs after the last operation."""

    def __post_init__(self) -> None:
        self.losses: dict[int, float] = {}
        self._turned: dict[int, Array] = {}
        self._virtual = len(self.work.spans) * self.work.depth

    def run(self) -> Awaiting[None]:
        """Yields the key of each frame that it needs, and is resumed with the frame's arrays."""
        oldest = oldest_needed(self.work.order, self.work.versions)
        for i, step in enumerate(self.work.order):
            if step.kind is Pass.FORWARD:
                yield from self._forward(step)
            elif step.kind is Pass.BACKWARD:
                yield from self._backward(step)
            else:
                yield from self._update(step, oldest[i])

    def _forward(self, step: PipelineStep) -> Awaiting[None]:
        virtual, k = step.chunk * self.work.depth + self.work.stage, step.microbatch
        if virtual:
            (inputs,) = yield (ACTIVATION, virtual, k)
        else:
            with users_code(f"microbatch {k}"):
                inputs, _ = self.state.model.data(k)
        outputs = yield from self.state.forward(self.work.spans[step.chunk], k, self.work.versions[k], inputs)
        if virtual < self._virtual - 1:
            self.send(self.work.after[k % len(self.work.after)], (ACTIVATION, virtual + 1, k), (outputs,))
            return
        with users_code(f"loss of microbatch {k}"):
            _, targets = self.state.model.data(k)
            loss, self._turned[k] = self.state.model.loss(outputs, targets)
        if not loss - loss == 0:
            raise NotFinite(f"microbatch {k}: the loss is {loss}: use a smaller rate or check the data")
        self.losses[k] = loss

    def _backward(self, step: PipelineStep) -> Awaiting[None]:
        virtual, k = step.chunk * self.work.depth + self.work.stage, step.microbatch
        if virtual < self._virtual - 1:
            (gradient,) = yield (GRADIENT, virtual, k)
        else:
            gradient = self._turned.pop(k)
        gradient = yield from self.state.backward(self.work.spans[step.chunk], k, gradient)
        if virtual:
            self.send(self.work.before[k % len(self.work.before)], (GRADIENT, virtual - 1, k), (gradient,))

    def _update(self, step: PipelineStep, oldest: int) -> Awaiting[None]:
        """Adds gradients in the order of microbatches, from node to node, so that the sum is that of one process."""
        del step
        layers = [layer for span in self.work.spans for layer in span]
        means: dict[int, Weights] = {}
        for layer in layers:
            chain, number = self.work.chains[layer], self.state.layers[layer].updates
            at = chain.index(self.name)
            total: Weights | None = (yield (SUM, layer, number)) if at else None
            for _, part in sorted(self.state.parts(layer), key=lambda numbered: numbered[0]):
                total = part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))
            assert total is not None
            if at < len(chain) - 1:
                self.send(chain[at + 1], (SUM, layer, number), total)
            else:
                means[layer] = tuple(array / self.work.divisor for array in total)
                for other in chain[:-1]:
                    self.send(other, (MEAN, layer, number), means[layer])
        for layer in layers:
            number = self.state.layers[layer].updates
            mean = means[layer] if layer in means else (yield (MEAN, layer, number))
            self.state.update(layer, mean, min(oldest, number + 1 - self.keep))
