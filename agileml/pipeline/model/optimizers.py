"""Update rules as pure functions: weights, state and gradient in, new weights and state out."""

from dataclasses import dataclass

import numpy as np

from agileml.checks import check_number
from agileml.errors import BadArgument
from agileml.pipeline.model.arrays import BFLOAT16, is_absent
from agileml.pipeline.model.base import Array, Weights
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE


@dataclass(frozen=True)
class Optimizer:
    """`sgd`, `momentum` or `adam`. State is one flat tuple, as long as the rule needs."""

    kind: str = "sgd"
    rate: float = 0.1
    momentum: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in OPTIMIZER_STATE:
            raise BadArgument(f"optimizer is {self.kind!r}; choose from {', '.join(OPTIMIZER_STATE)}")
        check_number("rate", self.rate, 0, above=True)

    def initial(self, weights: Weights) -> Weights:
        """Zeros: one array per weight and moment."""
        if any(weight.dtype == BFLOAT16 for weight in weights):
            raise BadArgument(
                "weights are bfloat16, on which numpy cannot compute: use agileml.pipeline.optimizers.TorchOptimizer"
            )
        return tuple(np.zeros_like(weight) for weight in weights * OPTIMIZER_STATE[self.kind])

    def step(self, weights: Weights, state: Weights, gradients: Weights, number: int) -> tuple[Weights, Weights]:
        """A gradient that is absent counts as 0."""
        count = len(weights)
        pairs = zip(weights, gradients, strict=True)
        gradients = tuple(np.zeros_like(w) if is_absent(g) else g for w, g in pairs)
        if self.kind == "sgd":
            return tuple(_less(w, self.rate * g) for w, g in zip(weights, gradients, strict=True)), ()
        if self.kind == "momentum":
            speed = tuple(self.momentum * v + g for v, g in zip(state, gradients, strict=True))
            return tuple(_less(w, self.rate * v) for w, v in zip(weights, speed, strict=True)), speed
        first = tuple(_decayed(m, g, self.momentum) for m, g in zip(state[:count], gradients, strict=True))
        squares = tuple(_decayed(v, g * g, self.second) for v, g in zip(state[count:], gradients, strict=True))
        moved = tuple(self._adam(w, m, v, number) for w, m, v in zip(weights, first, squares, strict=True))
        return moved, first + squares

    def _adam(self, weight: Array, first: Array, square: Array, number: int) -> Array:
        mean = first / (1 - self.momentum**number)
        spread = np.sqrt(square / (1 - self.second**number))
        return np.asarray(weight - self.rate * mean / (spread + self.epsilon))


def _less(weight: Array, step: Array) -> Array:
    """The weight after a step, in the memory of the step: new memory takes as long as the subtraction."""
    has_room = isinstance(step, np.ndarray) and step.dtype == weight.dtype
    return np.subtract(weight, step, out=step) if has_room else np.asarray(weight - step)


def _decayed(mean: Array, value: Array, keep: float) -> Array:
    return np.asarray(keep * mean + (1 - keep) * value)
