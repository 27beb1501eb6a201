"""Executes a work order as a generator: it yields frames to send, and the keys of those that it
needs.

An update may need numbers from all layers of a pipeline (`JointUpdate`): the sum of tied gradients,
and their common norm. The stages pass gradients and norms from the last to the first, and the sums
back. They are added in the order of the layers, so the result does not depend on where the model is
cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np

from agileml.errors import BadArgument, NotFinite, check_number
from agileml.pipeline.elastic.seats import WorkOrder, oldest_needed
from agileml.pipeline.model.base import (
    ABSENT,
    Array,
    PipelineLayer,
    Values,
    Weights,
    added,
    mean_of,
    packed,
    scaled,
    squared_norm,
    unpacked,
    users_code,
)
from agileml.pipeline.run.stage_state import StageState
from agileml.pipeline.schedule.schedules import STASHING, Pass, PipelineStep
from agileml.pipeline.tensor_parts import Awaiting, FrameKey, PipelineFrame
from agileml.protocol.actions import Send


@dataclass
class StageProgram:
    """Executes a work order. `losses` collects the loss of each microbatch at the last stage."""

    name: str
    work: WorkOrder
    state: StageState
    keep: int
    """Versions before the newest that the scheme needs after the last operation."""

    def __post_init__(self) -> None:
        self.losses: dict[int, float] = {}
        self._turned: dict[int, Values] = {}
        model = self.state.model
        self._joint = JointUpdate(
            len(model.layers), tied_weights(model.layers), self.state.optimizer.clip_norm
        )
        self._virtual = len(self.work.spans) * self.work.depth
        self.steps = self._run()
        self.needs: FrameKey | None = None
        """The frame with whose arrays the steps are to be resumed."""

    def _run(self) -> Awaiting[None]:
        oldest = oldest_needed(self.work.order, self.work.versions)
        for i, step in enumerate(self.work.order):
            if step.kind is Pass.FORWARD:
                yield from self._forward(step)
            elif step.kind is Pass.BACKWARD:
                yield from self._backward(step)
            else:
                yield from self._update(oldest[i])

    def _forward(self, step: PipelineStep) -> Awaiting[None]:
        virtual = step.chunk * self.work.depth + self.work.stage
        k = step.microbatch
        if virtual:
            inputs = unpacked((yield (ACTIVATION, virtual, k)))
        else:
            with users_code(f"microbatch {k}"):
                inputs, _ = self.state.model.data(k)

        outputs = yield from self.state.forward(
            self.work.spans[step.chunk], k, self.work.versions[k], inputs
        )
        if virtual < self._virtual - 1:
            to = self.work.after[k % len(self.work.after)]
            frame = PipelineFrame(self.state.epoch, (ACTIVATION, virtual + 1, k), packed(outputs))
            yield Send(to, frame)
            return

        with users_code(f"loss of microbatch {k}"):
            _, targets = self.state.model.data(k)
            loss, self._turned[k] = self.state.model.loss(outputs, targets)

        if not loss - loss == 0:
            raise NotFinite(
                f"microbatch {k}: the loss is {loss}: use a smaller rate or check the data"
            )

        self.losses[k] = loss

    def _backward(self, step: PipelineStep) -> Awaiting[None]:
        virtual = step.chunk * self.work.depth + self.work.stage
        k = step.microbatch
        last = virtual == self._virtual - 1
        gradient = self._turned.pop(k) if last else unpacked((yield (GRADIENT, virtual, k)))
        gradient = yield from self.state.backward(
            self.work.spans[step.chunk], k, self.work.versions[k], gradient
        )

        if virtual:
            to = self.work.before[k % len(self.work.before)]
            frame = PipelineFrame(self.state.epoch, (GRADIENT, virtual - 1, k), packed(gradient))
            yield Send(to, frame)

    def _update(self, oldest: int) -> Awaiting[None]:
        """Adds gradients in the order of microbatches, from node to node, so that the sum is that
        of one process.

        The gradients live no longer than this step: `_run` goes on through the whole order.
        """
        layers = [layer for span in self.work.spans for layer in span]
        means = yield from self._means(layers)
        if self._joint.tied or self._joint.clip_norm is not None:
            means = yield from self._jointly(means)
        for layer in layers:
            self.state.update(
                layer, means[layer], min(oldest, self.state.layers[layer].updates + 1 - self.keep)
            )

    def _means(self, layers: Sequence[int]) -> Awaiting[dict[int, Weights]]:
        """The mean gradients of layers, over all nodes that have them."""
        means: dict[int, Weights] = {}
        for layer in layers:
            chain = self.work.chains[layer]
            number = self.state.layers[layer].updates
            at = chain.index(self.name)
            total: Weights | None = (yield (SUM, layer, number)) if at else None
            in_place = len(chain) == 1 and self.state.owns(layer)
            for _, part in sorted(self.state.parts(layer), key=lambda numbered: numbered[0]):
                total = part if total is None else tuple(map(added, total, part))
            assert total is not None
            if at < len(chain) - 1:
                frame = PipelineFrame(self.state.epoch, (SUM, layer, number), total)
                yield Send(chain[at + 1], frame)
            else:
                means[layer] = tuple(
                    mean_of(array, self.work.divisor, in_place=in_place) for array in total
                )
                for other in chain[:-1]:
                    pipeline_frame = PipelineFrame(
                        self.state.epoch, (MEAN, layer, number), means[layer]
                    )
                    yield Send(other, pipeline_frame)

        for layer in layers:
            if layer not in means:
                means[layer] = yield (MEAN, layer, self.state.layers[layer].updates)

        return means

    def _jointly(self, means: dict[int, Weights]) -> Awaiting[dict[int, Weights]]:
        """The gradients after an exchange with all stages of the pipeline."""
        stage = self.work.stage
        last = self.work.depth - 1
        number = self.state.layers[min(means)].updates

        later = (yield (COLLECTED, stage, number)) if stage < last else None
        collected = self._joint.collected(means, later)
        if stage:
            frame = PipelineFrame(self.state.epoch, (COLLECTED, stage - 1, number), collected)
            yield Send(
                self.work.before[0],
                frame,
            )
            sums = yield (JOINT, stage, number)
        else:
            sums = self._joint.summed(collected)

        if stage < last:
            pipeline_frame = PipelineFrame(self.state.epoch, (JOINT, stage + 1, number), sums)
            yield Send(
                self.work.after[0],
                pipeline_frame,
            )

        return self._joint.applied(means, sums)


_AS_CLIPPED_BY_TORCH = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_."""


TiedWeight = tuple[tuple[int, int], ...]
"""Layers that have a weight in common, and its position among the weights of each."""


@dataclass(frozen=True)
class JointUpdate:
    """The tied weights of a model, and the largest norm of all gradients."""

    layers: int
    tied: Sequence[TiedWeight]
    clip_norm: float | None

    def collected(
        self, means: Mapping[int, Weights], later: tuple[Array, ...] | None
    ) -> tuple[Array, ...]:
        """The norm of each layer's gradients and all tied gradients, of a stage's layers and of
        later stages.
        """
        places = [place for places in self.tied for place in places]
        norms, *gradients = later or (np.zeros(self.layers), *(ABSENT for _ in places))
        norms = norms.copy()
        for layer, weights in means.items() if self.clip_norm is not None else ():
            norms[layer] = sum(
                squared_norm(gradient)
                for i, gradient in enumerate(weights)
                if (layer, i) not in places
            )

        own = [
            means[layer][i] if layer in means else gradient
            for (layer, i), gradient in zip(places, gradients, strict=True)
        ]
        return norms, *own

    def summed(self, collected: tuple[Array, ...]) -> tuple[Array, ...]:
        """The norm of all gradients, and the sum of each tied one: backward, as PyTorch adds
        them."""
        norms, *gradients = collected
        totals = []
        at = 0
        for places in self.tied:
            totals.append(reduce(added, reversed(gradients[at : at + len(places)])))
            at += len(places)

        squares = [
            *norms.tolist(),
            *(squared_norm(total) for total in totals if self.clip_norm is not None),
        ]
        return np.array(sqrt(sum(squares))), *totals

    def applied(self, means: Mapping[int, Weights], sums: tuple[Array, ...]) -> dict[int, Weights]:
        """The gradients of a stage's layers for the update."""
        norm, *totals = sums
        places = {
            place: total
            for places, total in zip(self.tied, totals, strict=True)
            for place in places
        }

        factor = (
            min(self.clip_norm / (float(norm) + _AS_CLIPPED_BY_TORCH), 1.0)
            if self.clip_norm is not None
            else 1.0
        )

        return {
            layer: tuple(
                scaled(places.get((layer, i), gradient), factor)
                for i, gradient in enumerate(weights)
            )
            for layer, weights in means.items()
        }


def tied_weights(layers: Sequence[PipelineLayer]) -> list[TiedWeight]:
    """All weights that several layers have in common."""
    members: dict[object, list[tuple[int, int]]] = {}
    for i, layer in enumerate(layers):
        for position, label in getattr(layer, "ties", {}).items():
            members.setdefault(label, []).append((i, position))
    return [tuple(places) for places in members.values() if len(places) > 1]


def check_joint_update(
    layers: Sequence[PipelineLayer], clip_norm: float | None, scheme: str, tensor: int
) -> None:
    """Raises BadArgument where the stages do not update at the same time, or where layers are
    split.
    """
    tied = tied_weights(layers)
    if not tied and clip_norm is None:
        return

    places = ", ".join(str(layer) for layer, _ in tied[0]) if tied else ""
    cause = f"layers {places} share a weight" if tied else f"clip_norm is {clip_norm}"
    if scheme in STASHING:
        raise BadArgument(
            f"{cause}, and the stages of {scheme} update at different times: use flush or 2bw"
        )
    if tensor > 1:
        raise BadArgument(f"{cause}, which split layers do not support: set tensor to 1")
    if clip_norm is not None:
        check_number("clip_norm", clip_norm, 0, above=True)


ACTIVATION, GRADIENT, SUM, MEAN = "activation", "gradient", "sum", "mean"


COLLECTED, JOINT = "collected", "joint"
