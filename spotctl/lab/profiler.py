"""Measures the layers of a model, one by one, for several microbatch sizes."""

from __future__ import annotations

import os
import secrets
import statistics
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from agileml.engines.interrupts import end_with_parent, ignored_by_children
from agileml.engines.local.fleet import NODE_ENVIRONMENT
from agileml.errors import JobFailed, check_whole, torch_module
from agileml.pipeline.builtin import ModelFactory
from agileml.pipeline.elastic.seats import (
    INITIAL,
    PipelineLayout,
    RunBatches,
    TakeSeat,
    work_orders,
)
from agileml.pipeline.model.base import (
    BFLOAT16,
    Array,
    Passed,
    PipelineLayer,
    PipelineModel,
    UpdateRule,
    Values,
    Weights,
    added,
    nbytes,
    packed,
    users_code,
)
from agileml.pipeline.optimizers import Optimizer, TorchOptimizer
from agileml.pipeline.profile.model_profile import FORMAT, OPTIMIZER_STATE, LayerCost, ModelProfile
from agileml.pipeline.run.fleet_job import PIPELINE_MESSAGES
from agileml.pipeline.run.node import PipelineNode, PipelineTask
from agileml.pipeline.tensor_parts import PipelineFrame, TensorPart, pieces, sum_of_parts
from agileml.pipeline.torch_layers import TorchLayer
from agileml.protocol.actions import Send
from agileml.protocol.messages import Broken
from agileml.runtime.folders import own_folder
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.rendezvous import FolderRendezvous

Stopwatch = Callable[[], float]

_WHOLE_REPEATS = 5
"""Batches of the whole model: each has many passes."""


def profiled(
    name: str,
    make: ModelFactory,
    sizes: Sequence[int],
    repeats: int,
    clock: Stopwatch = time.perf_counter,
    together: int = 1,
) -> tuple[ModelProfile, ...]:
    """A profile for each microbatch size; times are medians of `repeats` passes, after one to warm
    up.

    A process of its own measures, in the environment of nodes and with one thread: numpy and
    PyTorch decide on their threads when they are imported. Nodes on one computer share its memory
    and slow each other down: `together` processes then measure at the same time, and the slowest
    one counts.
    """
    check_whole("repeats", repeats, 1)
    check_whole("together", together, 1)
    for size in sizes:
        check_whole("microbatch", size, 1)
    work = cloudpickle.dumps((name, make, tuple(sizes), repeats, clock, together))
    before = {key: os.environ.get(key) for key in NODE_ENVIRONMENT}
    os.environ.update(NODE_ENVIRONMENT)
    processes = ProcessPoolExecutor(
        together,
        get_context("spawn"),
        initializer=start_new_thread,
        initargs=(end_with_parent, ()),
    )

    try:
        with ignored_by_children():
            measurements = [processes.submit(_measure, work) for _ in range(together)]
        runs = [measurement.result() for measurement in measurements]
        return tuple(
            max(alike, key=lambda profile: profile.seconds) for alike in zip(*runs, strict=True)
        )
    except BrokenProcessPool as error:
        raise JobFailed(
            f"{name}: the process that measures the layers was killed: use smaller microbatches, "
            "or more memory"
        ) from error
    finally:
        # Ctrl-C ends the wait for a measurement.
        processes.shutdown(wait=False, cancel_futures=True)
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def _measure(work: bytes) -> tuple[ModelProfile, ...]:
    name, make, sizes, repeats, clock, together = cloudpickle.loads(work)
    with loopback() as carry:
        measuring = _Measuring(repeats, clock, carry, together)
        with users_code(name):
            return tuple(_profile(name, make(size), size, measuring) for size in sizes)


def profiles_to_json(model: str, profiles: Sequence[ModelProfile]) -> dict[str, Any]:
    """The file that `spotctl lab parallel plan` reads."""
    written = list[dict[str, Any]]()
    for profile in profiles:
        layers = [vars(layer) for layer in profile.layers]
        entry = {
            "microbatch": profile.microbatch,
            "input_bytes": profile.input_bytes,
            "layers": layers,
        }
        written.append(entry)
    return {"format": FORMAT, "model": model, "profiles": written}


@dataclass(frozen=True)
class _Measuring:
    repeats: int
    clock: Stopwatch
    carry: Callable[[Array], PipelineFrame]
    together: int

    def seconds(self, work: Callable[[], object]) -> float:
        """The median of some runs, after one to warm up."""
        work()
        seconds = []
        for _ in range(self.repeats):
            begun = self.clock()
            work()
            seconds.append(self.clock() - begun)
        return statistics.median(seconds)


def _profile(name: str, model: PipelineModel, size: int, measuring: _Measuring) -> ModelProfile:
    weights = [model.initial(i) for i in range(len(model.layers))]
    values, targets = model.data(0)
    input_bytes = nbytes(values)
    cuts = pieces(model.layers)
    inputs = []

    for piece in cuts:
        inputs.append(values)
        outputs = []
        for i in piece:
            with users_code(f"layer {i}"):
                output, _ = model.layers[i].forward(weights[i], values, (0, 0, i))
                outputs.append(output)
        values = _joined(model, piece, outputs, values)

    costs: list[LayerCost] = []
    reading = measuring.seconds(lambda: model.data(0))
    judging = measuring.seconds(lambda: model.loss(values, targets))
    _, gradient = model.loss(values, targets)

    for piece, given in zip(reversed(cuts), reversed(inputs), strict=True):
        alike = list[LayerCost]()
        passed = []
        for i in piece:
            with users_code(f"layer {i}"):
                cost, inner = _cost(model.layers[i], i, weights[i], given, gradient, measuring)
                alike.append(cost)
                passed.append(inner)
        costs.append(_together(alike))
        gradient = _joined(model, piece, passed, gradient)

    # The costs are in reverse order. The last stage reads the microbatch once more, for the
    # targets.
    last = costs[0]
    costs[0] = replace(last, backward_seconds=last.backward_seconds + reading + judging)
    first = costs[-1]
    costs[-1] = replace(first, forward_seconds=first.forward_seconds + reading)
    few = replace(measuring, repeats=min(measuring.repeats, _WHOLE_REPEATS))
    whole = scale_to_whole_model(model, costs[::-1], few.seconds, measuring.together)
    return ModelProfile(name, size, tuple(whole), float(input_bytes))


def _together(alike: Sequence[LayerCost]) -> LayerCost:
    """The costs of all parts of a layer together; each has the whole layer's output."""
    forward, backward, stash_bytes, weight_bytes = 0.0, 0.0, 0.0, 0.0
    updates = dict.fromkeys(OPTIMIZER_STATE, 0.0)
    for cost in alike:
        forward += cost.forward_seconds
        backward += cost.backward_seconds
        stash_bytes += cost.stash_bytes
        weight_bytes += cost.weight_bytes
        for kind in updates:
            updates[kind] += cost.update_seconds[kind]

    return replace(
        alike[0],
        forward_seconds=forward,
        backward_seconds=backward,
        stash_bytes=stash_bytes,
        weight_bytes=weight_bytes,
        update_seconds=updates,
        parts=len(alike),
    )


def _joined(model: PipelineModel, piece: range, parts: Sequence[Passed], whole: Passed) -> Passed:
    first = model.layers[piece[0]]
    if isinstance(first, TensorPart):
        return sum_of_parts(parts, whole, residual=first.residual)
    return parts[0]


def _cost(
    layer: PipelineLayer,
    i: int,
    weights: Weights,
    inputs: Values,
    gradient: Values,
    measuring: _Measuring,
) -> tuple[LayerCost, Passed]:
    """The cost of a layer, and the gradient of its inputs."""
    inner = layer.layer if isinstance(layer, TensorPart) else layer
    place = (0, 0, i)
    forward = measuring.seconds(lambda: inner.forward(weights, inputs, place))
    # A stash serves one backward pass only.
    both = measuring.seconds(
        lambda: inner.backward(weights, inner.forward(weights, inputs, place)[1], gradient)
    )
    output, stash = inner.forward(weights, inputs, place)
    held = _stash_bytes(inner, weights, inputs, stash)
    size_of = float(sum(weight.nbytes for weight in weights))
    kind = inner.kind(place) if isinstance(inner, TorchLayer) else type(inner).__name__
    before, gradients = inner.backward(weights, stash, gradient)
    adding = measuring.seconds(lambda: tuple(added(array, array) for array in gradients))
    backward = max(both - forward, 0.0) + adding
    carrying = measuring.seconds(lambda: [measuring.carry(array) for array in packed(output)])
    updates = dict[str, float]()
    for optimizer in OPTIMIZER_STATE:
        step = _update(optimizer, weights, gradients)
        updates[optimizer] = measuring.seconds(step)

    cost = LayerCost(
        f"{i}:{kind}",
        forward,
        backward,
        float(nbytes(output)),
        held,
        size_of,
        output_seconds=carrying,
        update_seconds=updates,
    )

    return cost, before


def _update(kind: str, weights: Weights, gradients: Weights) -> Callable[[], object]:
    """The mean of the gradients, and the step."""
    rule, stand_ins = Optimizer(kind), list[Weights]()
    for arrays in (weights, gradients):
        same_size = list[Any]()
        for array in arrays:
            stand_in = array
            if array.dtype == BFLOAT16:
                # Only the time counts: numbers of another type with as many bytes.
                stand_in = np.zeros(array.shape, np.float16)
            same_size.append(stand_in)
        stand_ins.append(tuple(same_size))

    weights, gradients = stand_ins
    state = rule.initial(weights)
    return lambda: rule.step(weights, state, tuple(array / 2 for array in gradients), 1)


def _stash_bytes(layer: PipelineLayer, weights: Weights, inputs: Values, stash: object) -> float:
    if not isinstance(layer, TorchLayer):
        return float(_array_bytes(stash))

    torch = torch_module()
    sizes: dict[int, int] = {}
    own = {weight.ctypes.data for weight in weights}

    def seen(tensor: Any) -> Any:  # noqa: ANN401  # a tensor
        if tensor.data_ptr() not in own:
            sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        layer.forward(weights, inputs, (0, 0, 0))
    return float(sum(sizes.values()))


def _array_bytes(stash: object) -> int:
    if isinstance(stash, np.ndarray):
        return stash.nbytes
    if isinstance(stash, tuple | list):
        return sum(map(_array_bytes, stash))
    return 0


FEW, MANY = 2, 6
"""Microbatches of the two kinds of batches that tell the passes from the update."""

_RATE = 1e-12
_WEIGHT_COPIES = 5
"""Arrays as large as the weights, at most: two versions, gradients, their sum and their mean."""


def scale_to_whole_model(
    model: PipelineModel,
    costs: list[LayerCost],
    seconds: Callable[[Callable[[], object]], float],
    together: int = 1,
) -> list[LayerCost]:
    """The costs of layers, scaled to what all take together; unscaled if memory does not hold the
    whole model.

    `seconds` measures a piece of work. As many processes measure `together`, and share the memory.
    """
    needed = sum(_WEIGHT_COPIES * layer.weight_bytes + layer.stash_bytes for layer in costs)
    if needed * together > _free_memory():
        return costs

    few, many = (seconds(_training(model, number)) for number in (FEW, MANY))
    passes = (many - few) / (MANY - FEW)
    updates = few - FEW * passes
    alone = sum(layer.seconds for layer in costs)
    alone_updates = sum(layer.update_seconds["sgd"] for layer in costs)
    # 1 if either time is too short to be measured.
    of_pass, of_update = (
        whole / apart if min(whole, apart) > 0 else 1.0
        for whole, apart in ((passes, alone), (updates, alone_updates))
    )

    scaled = list[LayerCost]()
    for layer in costs:
        update_seconds = {kind: layer.update_seconds[kind] * of_update for kind in OPTIMIZER_STATE}
        forward, backward = layer.forward_seconds * of_pass, layer.backward_seconds * of_pass
        of_whole = replace(
            layer,
            forward_seconds=forward,
            backward_seconds=backward,
            update_seconds=update_seconds,
        )
        scaled.append(of_whole)
    return scaled


def _training(model: PipelineModel, microbatches: int) -> Callable[[], None]:
    """Trains a batch with each call, as a node without peers."""
    last = len(model.layers) - 1
    name = "one"
    epoch = 1
    layout = PipelineLayout((((0, last),),), (microbatches,))
    numbers = count()

    # The profile is of the first microbatch; the data may not have many.
    first_only = replace(model, data=lambda _: model.data(0))

    # Steps that change nothing; PyTorch's for weights on which numpy cannot compute.
    rule: UpdateRule = Optimizer("sgd", _RATE)
    weights = (array for layer in range(len(model.layers)) for array in model.initial(layer))
    if any(array.dtype == BFLOAT16 for array in weights):
        from torch.optim import SGD

        rule = TorchOptimizer(partial(SGD, lr=_RATE))

    node = PipelineNode(name, PipelineTask(first_only, rule, "flush"))
    layers = tuple(range(len(model.layers)))

    def follow(instruction: TakeSeat | RunBatches) -> None:
        for action in node.handle(instruction):
            if isinstance(action, Send) and isinstance(action.message, Broken):
                raise JobFailed(action.message.message.removeprefix(f"{name}: "))

    follow(TakeSeat(epoch, 0, layers, dict.fromkeys(layers, INITIAL), (), ()))

    def train() -> None:
        first = next(numbers)
        work = work_orders(layout, [name], "flush", first, first + 1)[name]
        follow(RunBatches(epoch, first, first + 1, work, ()))

    return train


def _free_memory() -> float:
    """Bytes of memory that are available; on systems without /proc/meminfo, all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        kibibytes = int(line.split()[1])
        return 1024.0 * kibibytes
    except (OSError, StopIteration):
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return float(pages * page_bytes)


_FROM, _TO = "from", "to"


@contextmanager
def loopback() -> Iterator[Callable[[Array], PipelineFrame]]:
    """Carries an array from one mailbox to another, over a link that is closed at the end of the
    block.
    """
    secret = secrets.token_bytes(32)
    with own_folder() as folder:
        rendezvous = FolderRendezvous(folder, secret)
        sender, receiver = (
            Mailbox(rendezvous, name, messages=PIPELINE_MESSAGES) for name in (_FROM, _TO)
        )

        def carry(array: Array) -> PipelineFrame:
            sender.send(_TO, PipelineFrame(0, ("activation", 0, 0), (array,)))
            while True:
                for _ in sender.receive(0.0):
                    pass
                for event in receiver.receive(0.0):
                    if isinstance(event, Envelope) and isinstance(event.message, PipelineFrame):
                        return event.message

        try:
            receiver.open()
            yield carry
        finally:
            sender.close()
            receiver.close()
