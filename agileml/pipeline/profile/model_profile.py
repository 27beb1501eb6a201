"""The cost of one microbatch, layer by layer; the input of every plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadArgument, BadInput, check_number, check_whole

FORMAT = "spotctl-profile-1"


class BadProfile(BadInput, ValueError):
    """A profile cannot be used; the message names the layer, the value and the cure."""


@dataclass(frozen=True)
class LayerCost:
    """A piece of the model between two cuts, for one microbatch."""

    name: str
    """Name of the layer."""
    forward_seconds: float
    """Time of the forward pass of a microbatch; the first layer's with reading the inputs."""
    backward_seconds: float
    """Time of the backward pass with adding up gradients; the last layer's with targets and
    loss."""
    output_bytes: float
    """Size of the tensors that cross the cut after the layer."""
    stash_bytes: float
    """Memory that the forward pass keeps for the backward pass."""
    weight_bytes: float
    """Size of the weights."""
    parts: int = 1
    """Number of equal parts that devices may compute at the same time."""
    output_seconds: float = 0.0
    """Processor time at both ends to pass the output on in a message, without the link between
    them."""
    update_seconds: Mapping[str, float] = field(default_factory=dict)
    """Time of an update of the weights, by optimizer."""

    def __post_init__(self) -> None:
        check_whole(f"layer {self.name!r}: parts", self.parts, 1)
        figures = {key: getattr(self, key) for key in (*_FIGURES, "output_seconds")}
        figures |= {
            f"update_seconds.{kind}": seconds for kind, seconds in self.update_seconds.items()
        }

        for key, value in figures.items():
            if not isfinite(value) or value < 0:
                raise BadProfile(
                    f"layer {self.name!r}: {key} is {value!r}; profile it again: 0 or more is "
                    "needed"
                )

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds


_FIGURES = ("forward_seconds", "backward_seconds", "output_bytes", "stash_bytes", "weight_bytes")


@dataclass(frozen=True)
class ModelProfile:
    """All layers of a model, measured with one microbatch size."""

    model: str
    microbatch: int
    layers: tuple[LayerCost, ...]
    input_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not self.layers:
            raise BadProfile(
                f"model {self.model!r} has no layers: profile a model with at least one"
            )
        if self.microbatch < 1:
            raise BadProfile(
                f"model {self.model!r}: microbatch is {self.microbatch}; it must be 1 or more "
                "samples"
            )
        if self.seconds <= 0:
            raise BadProfile(
                f"model {self.model!r}: all layers take 0 seconds: profile it again with longer "
                "runs"
            )

    @property
    def seconds(self) -> float:
        """Time of one microbatch on one device."""
        return sum(layer.seconds for layer in self.layers)

    @property
    def weight_bytes(self) -> float:
        return sum(layer.weight_bytes for layer in self.layers)


def updated_always(profile: ModelProfile, optimizer: str) -> ModelProfile:
    """The profile for schemes that update after every microbatch, whose backward pass then includes
    the update.
    """
    layers = [
        replace(
            layer,
            backward_seconds=layer.backward_seconds + layer.update_seconds.get(optimizer, 0.0),
            update_seconds={},
        )
        for layer in profile.layers
    ]
    return replace(profile, layers=tuple(layers))


def tensor_degrees(parts: int) -> list[int]:
    """The numbers of devices, above 1, that can share the parts of a layer equally; ascending."""
    return [degree for degree in range(2, parts + 1) if parts % degree == 0]


def on_lanes(profile: ModelProfile, tensor: int, bandwidth: float) -> ModelProfile:
    """The profile for one of `tensor` devices that share all split layers, with the time to
    exchange their parts.

    A device sends the output of each of its parts to all others, and in the backward pass the
    gradient of the input. Raises BadProfile if the devices cannot share the parts equally.
    """
    if all(layer.parts == 1 for layer in profile.layers):
        raise BadProfile(
            f"tensor is {tensor}, and no layer of {profile.model} has parts: profile a model with "
            "split layers"
        )

    inputs = [profile.input_bytes, *(layer.output_bytes for layer in profile.layers)]
    layers = []
    for layer, entering in zip(profile.layers, inputs, strict=False):
        sent = (tensor - 1) * layer.parts / tensor / bandwidth
        if layer.parts > 1 and layer.parts % tensor:
            raise BadProfile(
                f"layer {layer.name!r} has {layer.parts} parts, and tensor is {tensor}: use a "
                f"divisor of {layer.parts}"
            )
        forward_seconds = layer.forward_seconds / tensor + layer.output_bytes * sent
        backward_seconds = layer.backward_seconds / tensor + entering * sent
        update_seconds = {key: seconds / tensor for key, seconds in layer.update_seconds.items()}
        share = replace(
            layer,
            forward_seconds=forward_seconds,
            backward_seconds=backward_seconds,
            stash_bytes=layer.stash_bytes / tensor,
            weight_bytes=layer.weight_bytes / tensor,
            update_seconds=update_seconds,
        )
        layers.append(share if layer.parts > 1 else layer)

    return replace(profile, layers=tuple(layers))


def profiles_from_json(content: object) -> tuple[ModelProfile, ...]:
    """The profiles of a model in a file of `spotctl lab parallel profile`, one for each microbatch
    size.
    """
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise BadProfile(
            f"is not a profile of this program: expected format {FORMAT!r}; write one with"
            " spotctl lab parallel profile, or give the graph text of a published profile"
        )

    runs = content.get("profiles")
    if not isinstance(runs, list) or not runs:
        raise BadProfile("profiles: expected a list with an entry for each microbatch size")

    model = str(content.get("model", "model"))
    profiles = []
    for number, run in enumerate(runs):
        where = f"profiles.{number}"
        if not isinstance(run, Mapping) or not isinstance(run.get("layers"), list):
            raise BadProfile(f"{where}.layers: expected a list of layers")

        microbatch = run.get("microbatch")
        if not isinstance(microbatch, int) or isinstance(microbatch, bool):
            raise BadProfile(
                f"{where}.microbatch is {microbatch!r}; it must be a whole number of samples"
            )

        entries = enumerate(run["layers"])
        layers = tuple(_layer(layer, f"{where}.layers.{i}") for i, layer in entries)
        input_bytes = _figure(run, "input_bytes", where)
        profiles.append(ModelProfile(model, microbatch, layers, input_bytes))

    return tuple(profiles)


def _layer(entry: object, where: str) -> LayerCost:
    if not isinstance(entry, Mapping):
        raise BadProfile(f"{where}: expected an object with {', '.join(_FIGURES)}")

    figures = {key: _figure(entry, key, where) for key in _FIGURES}
    updates = entry.get("update_seconds", {})
    if not isinstance(updates, Mapping):
        raise BadProfile(
            f"{where}.update_seconds is {updates!r}; it must have the seconds of each optimizer"
        )

    return LayerCost(
        name=str(entry.get("name", where)),
        **figures,
        parts=entry.get("parts", 1),
        output_seconds=_figure(entry, "output_seconds", where)
        if "output_seconds" in entry
        else 0.0,
        update_seconds={
            str(key): _figure(updates, key, f"{where}.update_seconds") for key in updates
        },
    )


def _figure(entry: Mapping[Any, Any], key: str, where: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadProfile(
            f"{where}.{key} is {value!r}; it must be a number: profile the model again"
        )
    return float(value)


Sync = Literal["ring", "shared"]
Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

OPTIMIZER_STATE = {"sgd": 0, "momentum": 1, "adam": 2}
"""Extra copies of the weights that an optimizer keeps."""


@dataclass(frozen=True)
class CostRules:
    """How seconds and bytes of a stage are counted."""

    sync: Sync = "ring"
    overlap: float = 1.0
    """Share of the shorter of compute and synchronization that is hidden behind the longer."""
    memory_bytes: float = float("inf")
    optimizer: str = "sgd"


def cost_rules(sync: str, overlap: float, memory_bytes: float, optimizer: str) -> CostRules:
    """The rules of a user's settings; raises BadArgument for an unknown value."""
    check_number("overlap", overlap, 0, 1)
    for kind in get_args(Sync):
        if sync == kind:
            return CostRules(kind, overlap, memory_bytes, optimizer)
    raise BadArgument(f"sync is {sync!r}; choose from {', '.join(get_args(Sync))}")


def sync_factor(replicas: int, sync: Sync) -> float:
    """Bytes that the busiest link carries per byte of weights while `replicas` inputs are
    processed.

    A ring moves 2(m-1)/m of the weights over each link; on a shared bus all workers' traffic adds
    up to 2(m-1).
    """
    return 2 * (replicas - 1) / (replicas if sync == "ring" else 1)


def stage_seconds(
    compute: Matrix, weights: Matrix, replicas: int, bandwidth: float, rules: CostRules
) -> Matrix:
    """Seconds per input of a stage on `replicas` workers, which process one input each per
    round."""
    if replicas == 1:
        return compute
    synced = sync_factor(replicas, rules.sync) * weights / bandwidth
    longer = np.maximum(compute, synced)
    if rules.overlap < 1:
        longer = longer + (1 - rules.overlap) * np.minimum(compute, synced)
    return longer / replicas


def versioned_bytes(weights: Matrix, stash: Matrix, in_flight: int, optimizer: str) -> Matrix:
    """Bytes of a stage that keeps weights and stash of every input in flight, gradients and
    optimizer state.
    """
    return (in_flight + 1 + OPTIMIZER_STATE[optimizer]) * weights + in_flight * stash


@dataclass(frozen=True)
class SpanTables:
    """Sums over layers i..j of a model, as matrices; entries below the diagonal are infinite."""

    seconds: Matrix
    weights: Matrix
    stash: Matrix
    outputs: Vector

    @classmethod
    def of(cls, profile: ModelProfile) -> "SpanTables":
        layers = profile.layers
        seconds = _spans([layer.seconds for layer in layers])
        weights = _spans([layer.weight_bytes for layer in layers])
        stash = _spans([layer.stash_bytes for layer in layers])
        outputs = np.array([layer.output_bytes for layer in layers])
        return cls(seconds, weights, stash, outputs)


def _spans(values: Sequence[float]) -> Matrix:
    count = len(values)
    table = np.full((count, count), np.inf)
    for i in range(count):
        # Summed from i on, as a plain loop would: differences of prefix sums would round
        # differently.
        table[i, i:] = list(accumulate(values[i:]))
    return table
