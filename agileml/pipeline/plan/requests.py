"""`SplitRequest`: the input of the planner."""

from dataclasses import dataclass, field

from agileml.checks import check_whole
from agileml.errors import BadArgument
from agileml.pipeline.plan.topology import Topology
from agileml.pipeline.profile.costs import OPTIMIZER_STATE, CostRules
from agileml.pipeline.schedule import schemes


@dataclass(frozen=True)
class SplitRequest:
    """Devices, batch and limits. `None` and "auto" leave the choice to the planner."""

    topology: Topology
    batch: int
    rules: CostRules = field(default_factory=CostRules)
    scheme: str = "auto"
    allow_delay: int = 0
    """Updates that a gradient may miss in a scheme that the planner chooses."""
    stages: int | None = None
    pipelines: int | None = None
    chunks: int | None = None
    recompute: bool | None = None
    tensor: int | None = None
    """Devices of a server that share each split layer; None compares 1 with the parts that the layers have."""

    def __post_init__(self) -> None:
        check_whole("batch", self.batch, 1)
        check_whole("allow_delay", self.allow_delay, 0)
        for name in ("stages", "pipelines", "chunks", "tensor"):
            if (wanted := getattr(self, name)) is not None:
                check_whole("replicas" if name == "pipelines" else name, wanted, 1)
        if self.scheme not in ("auto", *schemes.SCHEMES):
            raise BadArgument(f"scheme is {self.scheme!r}; choose from auto, {', '.join(schemes.SCHEMES)}")
        if self.rules.optimizer not in OPTIMIZER_STATE:
            raise BadArgument(f"optimizer is {self.rules.optimizer!r}; choose from {', '.join(OPTIMIZER_STATE)}")
        tensor = self.tensor or 1
        needed = (self.stages or 1) * (self.pipelines or 1) * tensor
        if needed > self.topology.devices:
            each = f" of {tensor} devices each" if tensor > 1 else ""
            raise BadArgument(
                f"{self.stages or 1} stages{each} in {self.pipelines or 1} pipelines need {needed} devices, and there"
                f" are {self.topology.devices}: use fewer stages or more devices"
            )

    def allows(self, scheme: str, stages: int) -> bool:
        """Whether the scheme was named, or delays no gradient more than allowed."""
        if self.scheme != "auto":
            return self.scheme == scheme
        return scheme not in ("gpipe", "vertical-sync") and schemes.delay(scheme, stages) <= self.allow_delay
