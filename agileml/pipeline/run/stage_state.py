"""The layers that a worker holds: weight versions, buffers, optimizer state, stashes and
gradients."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from agileml.pipeline.model.base import (
    ABSENT,
    AddingLayer,
    Array,
    BufferedLayer,
    Passed,
    PipelineModel,
    Stash,
    UpdateRule,
    Values,
    Weights,
    added,
    is_absent,
    users_code,
)
from agileml.pipeline.tensor_parts import Awaiting, PipelineFrame, TensorPart, pieces, sum_of_parts
from agileml.protocol.actions import Send

PARTIAL, PARTIAL_AGAIN, PARTIAL_GRADIENT = "partial", "partial again", "partial gradient"
"""Frames with the result of a part of a split layer: in the forward, the repeated forward and the
backward pass."""


@dataclass(frozen=True)
class LayerState:
    """A layer after `updates` updates: the versions that may still be used, and the optimizer's
    state.
    """

    updates: int
    versions: Mapping[int, Weights]
    optimizer: Weights
    buffers: Weights = ()
    """After the newest forward pass."""

    def newest(self) -> Weights:
        return self.versions[self.updates]

    def arrays(self) -> list[Array]:
        """All of it, for another node or the store: counts, then the versions, the newest last, and
        the rest.
        """
        numbers = sorted(self.versions)
        head = np.array([len(self.newest()), len(self.buffers), *numbers], np.int64)
        versions = (array for number in numbers for array in self.versions[number])
        return [head, *versions, *self.buffers, *self.optimizer]


def layer_state(arrays: Sequence[Array]) -> LayerState:
    """The layer of these arrays."""
    head, *rest = arrays
    count, buffers, *numbers = head.tolist()
    versions = {
        number: tuple(rest[i * count : (i + 1) * count]) for i, number in enumerate(numbers)
    }
    rest = rest[len(numbers) * count :]
    return LayerState(numbers[-1], versions, tuple(rest[buffers:]), tuple(rest[:buffers]))


def initial_state(model: PipelineModel, optimizer: UpdateRule, layer: int) -> LayerState:
    """A layer before its first update."""
    weights = model.initial(layer)
    return LayerState(0, {0: weights}, optimizer.initial(weights), model.initial_buffers(layer))


_Given = tuple[Values, Mapping[int, Weights]]
"""The inputs of a pass, and the buffers of layers before it."""


@dataclass
class StageState:
    """Runs passes and updates of its layers. Passes ask for frames where other nodes have parts of
    a layer.
    """

    model: PipelineModel
    optimizer: UpdateRule
    layers: dict[int, LayerState]
    recompute: bool = False
    epoch: int = 0
    others: Sequence[str] = ()
    """The nodes of the pipeline stage that compute the other parts of its split layers; often there
    are none."""
    summed: Set[int] = frozenset()
    """Layers whose gradients all belong to this node, which adds them up instead of keeping one for
    each microbatch."""
    _stashes: dict[tuple[int, int], dict[int, Stash]] = field(default_factory=dict)
    """Of forward passes that wait for their backward pass, by the first layer and the
    microbatch."""
    _given: dict[tuple[int, int], _Given] = field(default_factory=dict)
    """With recomputation, in place of the stashes."""
    _gradients: dict[int, list[tuple[int, Weights]]] = field(default_factory=dict)
    _own: set[int] = field(default_factory=set)
    """Layers whose sum is in arrays that nothing else uses, to which more can be added without new
    memory."""

    def __post_init__(self) -> None:
        self._piece = {layer: piece for piece in pieces(self.model.layers) for layer in piece}

    def forward(
        self, span: Sequence[int], microbatch: int, version: int, inputs: Values
    ) -> Awaiting[Values]:
        """The output of layers `span` with one weight version: `backward` must get the same one."""
        buffers = {layer: self.layers[layer].buffers for layer in span if layer in self.layers}
        outputs, stashes, changed = yield from self._pass(
            PARTIAL, span, microbatch, version, (inputs, buffers)
        )
        for layer, arrays in changed.items():
            self.layers[layer] = replace(self.layers[layer], buffers=arrays)

        if self.recompute:
            self._given[span[0], microbatch] = inputs, buffers
        else:
            self._stashes[span[0], microbatch] = stashes
        return outputs

    def backward(
        self, span: Sequence[int], microbatch: int, version: int, gradient: Values
    ) -> Awaiting[Values]:
        """The gradient of the inputs; gradients of the weights are kept until `update`."""
        if self.recompute:
            given = self._given.pop((span[0], microbatch))
            _, stashes, _ = yield from self._pass(PARTIAL_AGAIN, span, microbatch, version, given)
        else:
            stashes = self._stashes.pop((span[0], microbatch))

        for piece in reversed(self._pieces(span)):
            own: dict[int, Passed] = {}
            for layer in piece:
                if layer in stashes:
                    with users_code(f"layer {layer}, backward pass of microbatch {microbatch}"):
                        own[layer] = self._turn_back(
                            layer, microbatch, version, stashes[layer], gradient
                        )
            gradient = yield from self._join(PARTIAL_GRADIENT, piece, microbatch, own, gradient)

        return gradient

    def _turn_back(
        self, number: int, microbatch: int, version: int, stash: Stash, gradient: Values
    ) -> Passed:
        layer = self.model.layers[number]
        weights = self.weights(number, version)
        if number not in self.summed or not isinstance(layer, AddingLayer):
            passed, gradients = layer.backward(weights, stash, gradient)
            _check_gradients(weights, gradients)
            held = self._gradients.setdefault(number, [])
            if held and number in self.summed:
                # Schedules have the backward passes of a layer in the order of microbatches, as the
                # sum must be.
                before, total = held.pop()
                assert before < microbatch
                gradients = tuple(
                    added(a, b, in_place=number in self._own)
                    for a, b in zip(total, gradients, strict=True)
                )
                self._own.add(number)
            held.append((microbatch, gradients))
            return passed

        ((_, totals),) = self._gradients.get(number) or [(0, (ABSENT,) * len(weights))]
        passed, totals = layer.backward_into(totals, stash, gradient)
        _check_gradients(weights, totals)
        self._gradients[number] = [(microbatch, totals)]
        self._own.add(number)

        return passed

    def weights(self, layer: int, version: int) -> Weights:
        """The stashed version of a layer's weights."""
        return self.layers[layer].versions[version]

    def owns(self, layer: int) -> bool:
        """Whether the sum of a layer's gradients is in arrays that nothing else uses."""
        return layer in self._own

    def parts(self, layer: int) -> list[tuple[int, Weights]]:
        """Gradients of a layer since its last update, by microbatch; sums of several count as the
        last.
        """
        self._own.discard(layer)
        return self._gradients.pop(layer, [])

    def update(self, layer: int, gradient: Weights, oldest: int) -> None:
        """Adds a version, and drops those before `oldest` that no later pass needs."""
        state = self.layers[layer]
        weights, moments = self.optimizer.step(
            state.newest(), state.optimizer, gradient, state.updates + 1
        )
        kept = {version: arrays for version, arrays in state.versions.items() if version >= oldest}
        self.layers[layer] = LayerState(
            state.updates + 1, {**kept, state.updates + 1: weights}, moments, state.buffers
        )

    def _pass(
        self, kind: str, span: Sequence[int], microbatch: int, version: int, given: _Given
    ) -> Awaiting[tuple[Values, dict[int, Stash], dict[int, Weights]]]:
        """The outputs, what the backward pass needs, and changed buffers."""
        values, buffers = given
        stashes: dict[int, Stash] = {}
        changed: dict[int, Weights] = {}
        for piece in self._pieces(span):
            own: dict[int, Passed] = {}
            for i in piece:
                if i not in self.layers:
                    continue
                layer = self.model.layers[i]
                weights = self.weights(i, version)
                key = (self.model.seed, microbatch, i)
                with users_code(f"layer {i}, forward pass of microbatch {microbatch}"):
                    if buffers[i] and isinstance(layer, BufferedLayer):
                        own[i], stashes[i], changed[i] = layer.forward_buffered(
                            weights, buffers[i], values, key
                        )
                    else:
                        own[i], stashes[i] = layer.forward(weights, values, key)
            values = yield from self._join(kind, piece, microbatch, own, values)

        return values, stashes, changed

    def _pieces(self, span: Sequence[int]) -> list[range]:
        return list(dict.fromkeys(self._piece[layer] for layer in span))

    def _join(
        self, kind: str, piece: range, microbatch: int, own: dict[int, Passed], whole: Passed
    ) -> Awaiting[Values]:
        """The joint output of all parts of a layer; `whole` went into each."""
        first = self.model.layers[piece[0]]
        if not isinstance(first, TensorPart):
            alone: Values = own[piece[0]]
            return alone

        for other in self.others:
            for layer, array in own.items():
                frame = PipelineFrame(self.epoch, (kind, layer, microbatch), (array,))
                yield Send(other, frame)

        parts = []
        for layer in piece:
            (array,) = (own[layer],) if layer in own else (yield (kind, layer, microbatch))
            parts.append(array)
        return sum_of_parts(parts, whole, residual=first.residual)


def _check_gradients(weights: Weights, gradients: Weights) -> None:
    """Refuses other shapes, which numpy might broadcast and add to the weights."""
    expected, returned = ([array.shape for array in arrays] for arrays in (weights, gradients))
    present = [
        shape for shape, array in zip(returned, gradients, strict=True) if not is_absent(array)
    ]
    wanted = [
        shape for shape, array in zip(expected, gradients, strict=False) if not is_absent(array)
    ]

    if len(expected) != len(returned) or wanted != present:
        raise ValueError(
            f"the gradients have shapes {returned}; they must be those of the weights, {expected}"
        )
