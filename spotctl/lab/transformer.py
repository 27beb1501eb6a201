"""Parameters, operations, training time and traffic of a transformer (Narayanan, chapter 4)."""

from dataclasses import dataclass

from agileml.errors import BadArgument, check_whole

_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class TransformerShape:
    """A decoder with `layers` blocks of width `hidden`."""

    layers: int
    hidden: int
    vocabulary: int
    sequence: int

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "vocabulary", "sequence"):
            check_whole(name, getattr(self, name), 1)

    @property
    def parameters(self) -> float:
        """Weights and biases of the blocks, and the token and position embeddings."""
        wide = 12 * self.layers * self.hidden**2
        ends = (self.vocabulary + self.sequence) / (12 * self.layers * self.hidden)
        return wide * (1 + 13 / (12 * self.hidden) + ends)

    def batch_operations(self, batch: int) -> float:
        """Floating-point operations of a batch whose forward pass is recomputed."""
        wide = 96 * batch * self.sequence * self.layers * self.hidden**2
        ends = self.vocabulary / (16 * self.layers * self.hidden)
        return wide * (1 + self.sequence / (6 * self.hidden) + ends)

    def training_days(self, tokens: float, devices: int, flops_per_second: float) -> float:
        """Days to train on `tokens` when each device reaches this speed; the batch size cancels
        out.
        """
        per_token = self.batch_operations(1) / self.sequence
        return tokens * per_token / (devices * flops_per_second) / _SECONDS_PER_DAY


@dataclass(frozen=True)
class TransformerLayout:
    """Tensor-parallel width t, p pipeline stages and d pipelines."""

    tensor: int
    stages: int
    pipelines: int


@dataclass(frozen=True)
class TransformerTraffic:
    """Elements that a device sends."""

    cut: float
    """Between two pipeline stages, in one direction, per microbatch."""
    tensor: float
    """For tensor parallelism, per layer and microbatch."""
    batch: float
    """For data parallelism, per batch."""


def traffic(
    shape: TransformerShape,
    layout: TransformerLayout,
    microbatch: int,
    chunks: int = 1,
    *,
    scatter: bool = False,
) -> TransformerTraffic:
    """With `scatter`, the t devices of a stage send a part of each activation and gather it on the
    other side.
    """
    activation = microbatch * shape.sequence * shape.hidden
    t = layout.tensor
    p = layout.stages
    d = layout.pipelines
    return TransformerTraffic(
        activation * chunks / (t if scatter else 1) if p > 1 else 0.0,
        8 * activation * (t - 1) / t,
        2 * (d - 1) / d * shape.parameters / (p * t),
    )


def layout_by_rule(
    shape: TransformerShape,
    devices: int,
    server: int,
    memory_bytes: float,
    bytes_per_parameter: float,
) -> TransformerLayout:
    """Tensor parallelism within a server, then stages until the state fits, then pipelines."""
    total = shape.parameters * bytes_per_parameter
    for tensor in [t for t in range(1, min(server, devices) + 1) if server % t == 0]:
        if total / tensor <= memory_bytes:
            return TransformerLayout(tensor, 1, devices // tensor)

    for stages in range(2, shape.layers + 1):
        if shape.layers % stages == 0 and total / (server * stages) <= memory_bytes:
            if server * stages > devices:
                break
            return TransformerLayout(server, stages, devices // (server * stages))

    raise BadArgument(
        f"devices is {devices}: {shape.parameters:.4g} parameters need {total:.4g} bytes, and the "
        "devices of"
        f" {memory_bytes:.4g} bytes cannot hold them: use more or larger devices"
    )
