"""Plans of pipeline parallelism as JSON and as tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group

from spotctl.show.layout import pairs_table, plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from agileml.pipeline.elastic.simulate_fleet import FleetResult
    from agileml.pipeline.plan.parallel_plan import ParallelPlan, PlayedPlan
    from agileml.pipeline.profile.model_profile import ModelProfile
    from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline

_GIB = 2**30


def answer(plan: ParallelPlan, kind: str) -> dict[str, Any]:
    """The JSON of `--json`; `spotctl lab parallel simulate` reads it.

    Fields:
        -> agileml.pipeline.plan.parallel_plan:ParallelPlan
        stages[] -> agileml.pipeline.plan.parallel_plan:PlannedStage
        rejected[].plan: the plan
        rejected[].reason: why it lost
        devices: kind and number of devices, as in cpu:4
    """
    return plan.to_json() | {"devices": f"{kind}:{plan.devices}"}


def table(plan: ParallelPlan, profiles: Sequence[ModelProfile]) -> Group:
    """A row for each pipeline stage, then the expected figures."""
    profile = next(profile for profile in profiles if profile.microbatch == plan.microbatch)
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
        *([("tensor", f"{plan.tensor} devices share each split layer")] if plan.tensor > 1 else []),
        ("recompute", "yes" if plan.recompute else "no"),
        ("samples/s", f"{_speed(plan.samples_per_second)} ({_speed(low)} to {_speed(high)}, {plan.basis})"),
        ("unpipelined", f"{_speed(plan.unpipelined_samples_per_second)} samples/s"),
        ("idle", f"{plan.idle:.1%}; bubble {plan.bubble:.1%}"),
        ("limited by", plan.bottleneck),
    ]
    return Group(stages, "", pairs_table(figures), "", _rejected(plan))


def _speed(value: float) -> str:
    """Four digits: `37,880`, `0.5`."""
    return f"{float(f'{value:.4g}'):,.10g}"


def _rejected(plan: ParallelPlan) -> Table:
    rows = plain_table("rejected", "reason", names=2)
    for name, reason in plan.rejected:
        rows.add_row(name, reason)
    return rows


def remarks(plan: ParallelPlan, kind: str) -> list[str]:
    return [f"{plan.model} on {plan.devices} x {kind}; --json writes the plan for spotctl lab parallel simulate"]


def played_answer(plan: ParallelPlan, played: PlayedPlan, fleet: FleetResult | None = None) -> dict[str, Any]:
    """The JSON of `spotctl lab parallel simulate --json`.

    Fields:
        stages[].peak_in_flight: most inputs in flight at a time
        stages[].peak_versions: most versions of the weights kept at a time
        fleet: with --trace, what the plan reaches on the recorded fleet
        fleet -> agileml.pipeline.elastic.simulate_fleet:FleetResult
    """
    return {
        "seconds": played.run.seconds,  #: simulated time
        "samples_per_second": played.samples_per_second,  #: speed in the simulation
        "planned_samples_per_second": plan.samples_per_second,  #: speed that the plan expects
        "bubble": played.bubble,  #: time lost to filling and draining the pipeline, relative to the ideal time
        "idle": played.run.idle,  #: share of device time without computation
        "extra_inputs": played.extra,  #: inputs in flight beyond the plan, because replicas are unequal
        "stages": [  #: the pipeline stages in order
            {"peak_in_flight": flying, "peak_versions": versions}
            for flying, versions in zip(played.peak_in_flight, played.peak_versions, strict=True)
        ],
        **({"fleet": asdict(fleet)} if fleet else {}),
    }


def played_table(plan: ParallelPlan, played: PlayedPlan, fleet: FleetResult | None = None) -> Group:
    """Peaks of each stage, then the speed."""
    rows = plain_table("stage", "in flight", "weight versions")
    for i, (flying, versions) in enumerate(zip(played.peak_in_flight, played.peak_versions, strict=True), 1):
        rows.add_row(str(i), str(flying), str(versions))
    figures = [
        ("samples/s", f"{_speed(played.samples_per_second)}; the plan expects {_speed(plan.samples_per_second)}"),
        ("bubble", f"{played.bubble:.1%} over the ideal time"),
        ("idle", f"{played.run.idle:.1%} of {played.run.seconds:.4g} s"),
    ]
    if played.extra:
        figures.append(("extra inputs", f"{played.extra} more in flight, because replicas are unequal"))
    shown = Group(rows, "", pairs_table(figures))
    return Group(shown, "", _fleet_table(fleet)) if fleet else shown


def _fleet_table(fleet: FleetResult) -> Table:
    bound = f"{fleet.samples / fleet.bound_samples:.1%}" if fleet.bound_samples else "none"
    return pairs_table(
        [
            ("fleet", f"{fleet.machine_seconds / 3600:.4g} machine hours in {fleet.seconds / 3600:.3g} h"),
            ("updates", f"{fleet.batches:,}; {_speed(fleet.samples_per_second)} samples/s over all the time"),
            ("of the bound", f"{bound} of the samples without pauses and repetitions"),
            ("redone", f"{_speed(fleet.redone_samples)} samples"),
            ("layouts", f"{fleet.layouts:,} times laid out over the machines"),
            ("idle", f"{fleet.idle:.1%} of machine time"),
        ]
    )


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


def profile_table(profiles: Sequence[ModelProfile]) -> Table:
    """A row for each layer and microbatch size."""
    rows = plain_table("layer", "microbatch", "forward ms", "backward ms", "output kB", "stash kB", "weights kB")
    for profile in profiles:
        for layer in profile.layers:
            sizes = (layer.output_bytes, layer.stash_bytes, layer.weight_bytes)
            times = (layer.forward_seconds, layer.backward_seconds)
            cells = [f"{time * 1e3:.3g}" for time in times] + [f"{size / 1e3:.4g}" for size in sizes]
            rows.add_row(layer.name, str(profile.microbatch), *cells)
    return rows


def trained_answer(trained: TrainedPipeline, plan: PipelinePlan) -> dict[str, Any]:
    """The JSON of `spotctl lab parallel train --json`."""
    return {
        "loss": _losses_by_batch(trained, plan),  #: mean loss of each batch
        "redone": trained.redone,  #: updates redone after the only copy of a layer was lost
        "plans": [  #: plans that were used one after another
            {
                "batch": epoch.batch,  #: first batch
                "nodes": list(epoch.nodes),  #: nodes that took part
                #: for each pipeline, the layers of each stage
                "pipelines": [[list(span) for span in spans] for spans in epoch.layout.pipelines],
                "microbatches": list(epoch.layout.shares),  #: microbatches of a batch, by pipeline
                "tensor": epoch.layout.tensor,  #: devices that share each layer
                #: time without training while the nodes changed to this plan; null if they never did
                "pause_seconds": None if epoch.running is None else epoch.running - epoch.began,
            }
            for epoch in trained.history
        ],
    }


def trained_table(trained: TrainedPipeline, plan: PipelinePlan) -> Group:
    """A row for each plan of the run, and the loss."""
    rows = plain_table("from update", "nodes", "stages per pipeline", "pause s", names=3)
    for epoch in trained.history:
        depths = "-".join(str(epoch.layout.depth(q)) for q in range(len(epoch.layout.pipelines)))
        pause = "-" if epoch.running is None else f"{epoch.running - epoch.began:.3g}"
        rows.add_row(str(epoch.batch), ", ".join(epoch.nodes), depths, pause)
    losses = _losses_by_batch(trained, plan)
    figures = [
        ("loss", f"{losses[0]:.4g} at first, {losses[-1]:.4g} at the end" if losses else "-"),
        ("redone", f"{trained.redone} updates after the only copy of a layer was lost"),
    ]
    return Group(rows, "", pairs_table(figures))


def _losses_by_batch(trained: TrainedPipeline, plan: PipelinePlan) -> list[float]:
    values = [trained.losses[k] for k in sorted(trained.losses)]
    return [sum(values[i : i + plan.batch]) / plan.batch for i in range(0, len(values), plan.batch)]
