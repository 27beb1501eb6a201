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
        biases = 13 / (12 * self.hidden)
        return wide * (1 + biases + ends)

    def batch_operations(self, batch: int) -> float:
        """Floating-point operations of a batch whose forward pass is recomputed."""
        wide = 96 * batch * self.sequence * self.layers * self.hidden**2
        ends = self.vocabulary / (16 * self.layers * self.hidden)
        attention = self.sequence / (6 * self.hidden)
        return wide * (1 + attention + ends)

    def training_days(self, tokens: float, devices: int, flops_per_second: float) -> float:
        """Days to train on `tokens` when each device reaches this speed; the batch size cancels
        out.
        """
        per_token = self.batch_operations(1) / self.sequence
        operations, per_second = tokens * per_token, devices * flops_per_second
        seconds = operations / per_second
        return seconds / _SECONDS_PER_DAY


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
    cut = 0.0
    if p > 1:
        senders = t if scatter else 1
        cut = activation * chunks / senders
    tensor = 8 * activation * (t - 1) / t
    batch = 2 * (d - 1) / d * shape.parameters / (p * t)
    return TransformerTraffic(cut, tensor, batch)


def layout_by_rule(
    shape: TransformerShape,
    devices: int,
    server: int,
    memory_bytes: float,
    bytes_per_parameter: float,
) -> TransformerLayout:
    """Tensor parallelism within a server, then stages until the state fits, then pipelines."""
    total = shape.parameters * bytes_per_parameter
    for tensor in range(1, min(server, devices) + 1):
        if server % tensor == 0 and total / tensor <= memory_bytes:
            return TransformerLayout(tensor, 1, devices // tensor)

    for stages in range(2, shape.layers + 1):
        used = server * stages
        if shape.layers % stages == 0 and total / used <= memory_bytes:
            if used > devices:
                break
            return TransformerLayout(server, stages, devices // used)

    needed = f"{shape.parameters:.4g} parameters need {total:.4g} bytes"
    raise BadArgument(
        f"devices is {devices}: {needed}, and the devices of {memory_bytes:.4g} bytes cannot hold "
        "them: use more or larger devices"
    )
