"""Multinomial logistic regression by gradient descent, on generated Gaussian classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agileml.apps.registry import number, whole
from agileml.errors import BadArgument
from agileml.params.layout import Params
from agileml.trainer import ParamReader, ParamView, Sample, random_generator

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Examples:
    """Features (the last one is always 1) and the class of each example."""

    features: Floats
    classes: NDArray[np.intp]


class ExampleShard:
    """Some of the examples; generated on first use, the same on every node."""

    def __init__(self, app: "LogisticRegression", number: int, count: int) -> None:
        self._app = app
        self._number = number
        self._count = count

    def __len__(self) -> int:
        return self._count

    @cached_property
    def examples(self) -> Examples:
        app = self._app
        rng = random_generator(app.seed, (1, self._number))
        classes = rng.integers(0, app.classes, self._count)
        features = np.ones((self._count, app.features + 1), np.float32)
        shape = (app.classes, app.features)
        directions = random_generator(app.seed, (0,)).standard_normal(shape, dtype=np.float32)
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        centers = np.float32(app.spread) * directions / lengths
        features[:, :-1] = centers[classes] + rng.standard_normal(
            (self._count, app.features), dtype=np.float32
        )
        return Examples(features, classes)

    def load(self) -> None:
        """Generates the examples in advance."""
        self.examples  # noqa: B018 - the property generates them


@dataclass(frozen=True, slots=True)
class LogisticRegression:
    """Assigns examples of `features` numbers to `classes`, whose centers are at distance `spread`
    from the origin.

    The loss is the mean cross-entropy in nats; it is log(classes) for the initial model.
    """

    classes: int = whole(10, "number of classes", least=2)
    features: int = whole(64, "features of an example")
    examples: int = whole(20_000, "examples to learn from")
    parts: int = whole(16, "number of shards that the input is split into")
    batch: int = whole(0, "examples per shard and clock; 0 for all", least=0)
    rate: float = number(1.0, "step size, for the mean gradient of a clock")
    spread: float = number(
        3.0, "distance of class centers from the origin, in standard deviations of the examples"
    )
    seed: int = whole(0, "seed of the generated examples", least=0)

    name = "mlr"

    def __post_init__(self) -> None:
        if self.parts > self.examples:
            raise BadArgument(
                f"mlr: parts is {self.parts}; it must be at most {self.examples}, the number of "
                "examples"
            )

    def init(self, rng: np.random.Generator) -> Params:
        """Zero weights, one row per feature."""
        del rng
        return {"weights": np.zeros((self.features + 1, self.classes), np.float32)}

    def shards(self) -> Sequence[ExampleShard]:
        bounds = [self.examples * part // self.parts for part in range(self.parts + 1)]
        return [
            ExampleShard(self, part, bounds[part + 1] - bounds[part]) for part in range(self.parts)
        ]

    def step(
        self,
        shard: ExampleShard,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """One gradient step over the chunk's examples."""
        del clock, rng
        seen = shard.examples
        features = seen.features[lo:hi]
        classes = seen.classes[lo:hi]
        excess = np.exp(_log_probabilities(features, params))
        excess[np.arange(hi - lo), classes] -= 1

        # Per example, as the steps of all examples in a clock are summed.
        clock_examples = min(self.batch or self.examples, self.examples // self.parts) * self.parts
        rate = np.float32(self.rate / clock_examples)
        params.update("weights", None, -rate * (features.T @ excess))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """Mean cross-entropy."""
        total = 0.0
        for piece in sample:
            seen = piece.shard.examples
            logs = _log_probabilities(seen.features[piece.lo : piece.hi], params)
            total -= float(
                logs[np.arange(len(piece)), seen.classes[piece.lo : piece.hi]].sum(dtype=np.float64)
            )
        return total / sum(map(len, sample))


def _log_probabilities(features: Floats, params: ParamReader) -> Floats:
    """Log-probabilities of the classes: the log-softmax of the scores."""
    scores: Floats = features @ params.read("weights")
    scores -= scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores
