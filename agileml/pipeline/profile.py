"""What one microbatch costs, layer by layer; the input of every plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from agileml.errors import BadInput

FORMAT = "spotctl-profile-1"


class BadProfile(BadInput, ValueError):
    """A profile cannot be used; the message names the layer, the value and the cure."""


@dataclass(frozen=True)
class LayerCost:
    """A piece of the model between two cuts, for one microbatch."""

    name: str
    forward_seconds: float
    backward_seconds: float
    output_bytes: float
    """Of the tensors that cross the cut after the layer."""
    stash_bytes: float
    """What the backward pass needs and the forward pass keeps."""
    weight_bytes: float

    def __post_init__(self) -> None:
        for key in _FIGURES:
            value = getattr(self, key)
            if not isfinite(value) or value < 0:
                raise BadProfile(f"layer {self.name!r}: {key} is {value!r}; profile it again: 0 or more is needed")

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
            raise BadProfile(f"model {self.model!r} has no layers: profile a model with at least one")
        if self.microbatch < 1:
            raise BadProfile(f"model {self.model!r}: microbatch is {self.microbatch}; it must be 1 or more samples")
        if self.seconds <= 0:
            raise BadProfile(f"model {self.model!r}: all layers take 0 seconds: profile it again with longer runs")

    @property
    def seconds(self) -> float:
        """Of one microbatch on one device."""
        return sum(layer.seconds for layer in self.layers)

    @property
    def weight_bytes(self) -> float:
        return sum(layer.weight_bytes for layer in self.layers)


def profiles_from_json(content: object) -> tuple[ModelProfile, ...]:
    """The profiles of a model in a file of `spotctl parallel profile`, one for each microbatch size."""
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise BadProfile(
            f"is not a profile of this program: expected format {FORMAT!r}; write one with"
            " spotctl parallel profile, or give the graph text of a published profile"
        )
    runs = content.get("profiles")
    if not isinstance(runs, list) or not runs:
        raise BadProfile("profiles: expected a list with an entry for each microbatch size")
    return tuple(_profile(str(content.get("model", "model")), run, f"profiles.{i}") for i, run in enumerate(runs))


def _profile(model: str, run: object, where: str) -> ModelProfile:
    if not isinstance(run, Mapping) or not isinstance(run.get("layers"), list):
        raise BadProfile(f"{where}.layers: expected a list of layers")
    microbatch = run.get("microbatch")
    if not isinstance(microbatch, int) or isinstance(microbatch, bool):
        raise BadProfile(f"{where}.microbatch is {microbatch!r}; it must be a whole number of samples")
    layers = tuple(_layer(one, f"{where}.layers.{i}") for i, one in enumerate(run["layers"]))
    return ModelProfile(model, microbatch, layers, _figure(run, "input_bytes", where))


def _layer(one: object, where: str) -> LayerCost:
    if not isinstance(one, Mapping):
        raise BadProfile(f"{where}: expected an object with {', '.join(_FIGURES)}")
    return LayerCost(str(one.get("name", where)), *(_figure(one, key, where) for key in _FIGURES))


def _figure(one: Mapping[Any, Any], key: str, where: str) -> float:
    value = one.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadProfile(f"{where}.{key} is {value!r}; it must be a number: profile the model again")
    return float(value)
