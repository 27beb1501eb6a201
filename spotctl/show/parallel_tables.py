"""Plans of pipeline parallelism as JSON and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group

from spotctl.show.layout import pairs_table, plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from agileml.pipeline.plan import ParallelPlan
    from agileml.pipeline.profile import ModelProfile

_GIB = 2**30


def answer(plan: ParallelPlan, kind: str) -> dict[str, Any]:
    """The JSON of `--json`; `spotctl parallel simulate` reads it."""
    return plan.to_json() | {"devices": f"{kind}:{plan.devices}"}


def table(plan: ParallelPlan, profiles: Sequence[ModelProfile]) -> Group:
    """A row for each pipeline stage, then the expected figures."""
    profile = next(one for one in profiles if one.microbatch == plan.microbatch)
    stages = plain_table("stage", "first layer", "last layer", "replicas", "ms", "weights MB", "memory GiB", names=3)
    for i, stage in enumerate(plan.stages, 1):
        first, last = stage.layers
        stages.add_row(
            str(i),
            profile.layers[first].name,
            profile.layers[last].name,
            str(stage.replicas),
            f"{(stage.forward_seconds + stage.backward_seconds) * 1e3:.3g}",
            f"{stage.weight_bytes / 1e6:.3g}",
            f"{stage.memory_bytes / _GIB:.3g}",
        )
    low, high = plan.interval
    figures = [
        ("scheme", plan.scheme + (f", {plan.chunks} chunks" if plan.chunks > 1 else "")),
        ("microbatch", f"{plan.microbatch} samples; {plan.microbatches} per batch and pipeline"),
        ("recompute", "yes" if plan.recompute else "no"),
        ("samples/s", f"{plan.samples_per_second:.4g} ({low:.4g} to {high:.4g}, {plan.basis})"),
        ("unpipelined", f"{plan.unpipelined_samples_per_second:.4g} samples/s"),
        ("idle", f"{plan.idle:.1%}; bubble {plan.bubble:.1%}"),
        ("limited by", plan.bottleneck),
    ]
    return Group(stages, "", pairs_table(figures), "", _rejected(plan))


def _rejected(plan: ParallelPlan) -> Table:
    rows = plain_table("rejected", "reason", names=2)
    for name, reason in plan.rejected:
        rows.add_row(name, reason)
    return rows


def remarks(plan: ParallelPlan, kind: str) -> list[str]:
    """The line below the tables."""
    return [f"{plan.model} on {plan.devices} x {kind}; --json writes the plan for spotctl parallel simulate"]


def transformer_table(figures: dict[str, Any]) -> Table:
    """The estimates of a transformer."""
    layout = f"tensor {figures['tensor']}, stages {figures['stages']}, replicas {figures['replicas']}"
    sent = figures["elements"]
    return pairs_table(
        [
            ("parameters", f"{figures['parameters'] / 1e9:.4g} billion"),
            ("operations", f"{figures['operations_per_sample']:.4g} per sample"),
            ("training", f"{figures['training_days']:.3g} days"),
            ("layout", layout),
            ("cut", f"{sent['cut']:.4g} elements per microbatch and direction"),
            ("tensor", f"{sent['tensor']:.4g} elements per layer and microbatch"),
            ("gradients", f"{sent['batch']:.4g} elements per batch"),
        ]
    )
