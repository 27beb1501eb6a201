"""`spotctl lab parallel`: recorded fleets, and plans, their simulation and training as tables and
JSON.
"""

from __future__ import annotations

import csv
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group

from agileml.pipeline.plan.parallel_plan import ParallelPlan, PlannedStage
from agileml.pipeline.profile.model_profile import LayerCost
from pricing_data.sources.observations import read_availability
from spotctl.home.errors import BadRequest
from spotctl.lab.simulate_fleet import FleetChange, FleetResult
from spotctl.lab.transformer import TransformerTraffic
from spotctl.show.columns import Column, as_json
from spotctl.show.layout import pairs_table, plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from agileml.pipeline.plan.parallel_plan import PlayedPlan
    from agileml.pipeline.profile.model_profile import ModelProfile
    from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline

_GIB = 2**30
_HEADER = "time_s"
_ADD, _REMOVE = "add", "remove"

PLAN: tuple[Column[Any] | type, ...] = (
    ParallelPlan,
    Column("stages", each=PlannedStage),
    Column("rejected", each=(Column("plan", "the plan"), Column("reason", "why it lost"))),
    Column("devices", "kind and number of devices, as in cpu:4"),
)


def plan_json(plan: ParallelPlan, kind: str) -> dict[str, Any]:
    """The JSON of `parallel plan --json`, which `parallel simulate` reads."""
    written = plan.to_json()
    written["devices"] = f"{kind}:{plan.devices}"
    return as_json(PLAN, written)


def plan_table(plan: ParallelPlan, profiles: Sequence[ModelProfile]) -> Group:
    """A row for each pipeline stage, then the expected figures."""
    profile = next(profile for profile in profiles if profile.microbatch == plan.microbatch)
    headings = ("stage", "first layer", "last layer", "replicas", "ms", "weights MB", "memory GiB")
    stages = plain_table(*headings, names=3)
    for i, stage in enumerate(plan.stages, 1):
        first, last = (profile.layers[number].name for number in stage.layers)
        seconds = stage.forward_seconds + stage.backward_seconds
        amounts = (seconds * 1e3, stage.weight_bytes / 1e6, stage.memory_bytes / _GIB)
        cells = [f"{amount:.3g}" for amount in amounts]
        stages.add_row(str(i), first, last, str(stage.replicas), *cells)

    rows, scheme = list[tuple[str, str]](), plan.scheme
    if plan.chunks > 1:
        scheme += f", {plan.chunks} chunks"
    rows.append(("scheme", scheme))
    batch = f"{plan.microbatches} per batch and pipeline"
    rows.append(("microbatch", f"{plan.microbatch} samples; {batch}"))
    if plan.tensor > 1:
        rows.append(("tensor", f"{plan.tensor} devices share each split layer"))
    rows.append(("recompute", "yes" if plan.recompute else "no"))
    speed = _speed(plan.samples_per_second)
    low, high = map(_speed, plan.interval)
    rows.append(("samples/s", f"{speed} ({low} to {high}, {plan.basis})"))
    unpipelined = _speed(plan.unpipelined_samples_per_second)
    rows.append(("unpipelined", f"{unpipelined} samples/s"))
    rows.append(("idle", f"{plan.idle:.1%}; bubble {plan.bubble:.1%}"))
    rows.append(("limited by", plan.bottleneck))

    rejected = plain_table("rejected", "reason", names=2)
    for name, reason in plan.rejected:
        rejected.add_row(name, reason)
    return Group(stages, "", pairs_table(rows), "", rejected)


def _speed(value: float) -> str:
    """Four digits: `37,880`, `0.5`."""
    return f"{float(f'{value:.4g}'):,.10g}"


PLAYED: tuple[Column[Any], ...] = (
    Column("seconds", "simulated time"),
    Column("samples_per_second", "speed in the simulation"),
    Column("planned_samples_per_second", "speed that the plan expects"),
    Column("bubble", "time lost to filling and draining the pipeline, relative to the ideal time"),
    Column("idle", "share of device time without computation"),
    Column("extra_inputs", "inputs in flight beyond the plan, because replicas are unequal"),
    Column(
        "stages",
        "the pipeline stages in order",
        each=(
            Column("peak_in_flight", "most inputs in flight at a time"),
            Column("peak_versions", "most versions of the weights kept at a time"),
        ),
    ),
    Column(
        "fleet",
        "with --trace, what the plan reaches on the recorded fleet",
        of=FleetResult,
        optional=True,
    ),
)


def played_json(
    plan: ParallelPlan, played: PlayedPlan, fleet: FleetResult | None = None
) -> dict[str, Any]:
    """The JSON of `parallel simulate --json`."""
    stages = list[dict[str, int]]()
    for flying, versions in zip(played.peak_in_flight, played.peak_versions, strict=True):
        peaks = {"peak_in_flight": flying, "peak_versions": versions}
        stages.append(peaks)

    figures = {
        "seconds": played.run.seconds,
        "samples_per_second": played.samples_per_second,
        "planned_samples_per_second": plan.samples_per_second,
        "bubble": played.bubble,
        "idle": played.run.idle,
        "extra_inputs": played.extra,
        "stages": stages,
        "fleet": fleet,
    }

    return as_json(PLAYED, figures)


def played_table(plan: ParallelPlan, played: PlayedPlan, fleet: FleetResult | None = None) -> Group:
    """Peaks of each stage, then the speed."""
    stages = plain_table("stage", "in flight", "weight versions")
    peaks = zip(played.peak_in_flight, played.peak_versions, strict=True)
    for i, (flying, versions) in enumerate(peaks, 1):
        stages.add_row(str(i), str(flying), str(versions))

    rows, run = list[tuple[str, str]](), played.run
    speed, planned = _speed(played.samples_per_second), _speed(plan.samples_per_second)
    rows.append(("samples/s", f"{speed}; the plan expects {planned}"))
    rows.append(("bubble", f"{played.bubble:.1%} over the ideal time"))
    rows.append(("idle", f"{run.idle:.1%} of {run.seconds:.4g} s"))
    if played.extra:
        more = f"{played.extra} more in flight, because replicas are unequal"
        rows.append(("extra inputs", more))

    shown = Group(stages, "", pairs_table(rows))
    if fleet is None:
        return shown

    reached, bound = list[tuple[str, str]](), "none"
    machine_hours, hours = fleet.machine_seconds / 3600, fleet.seconds / 3600
    reached.append(("fleet", f"{machine_hours:.4g} machine hours in {hours:.3g} h"))
    speed, redone = _speed(fleet.samples_per_second), _speed(fleet.redone_samples)
    reached.append(("updates", f"{fleet.batches:,}; {speed} samples/s over all the time"))
    if fleet.bound_samples:
        share = fleet.samples / fleet.bound_samples
        bound = f"{share:.1%}"
    reached.append(("of the bound", f"{bound} of the samples without pauses and repetitions"))
    reached.append(("redone", f"{redone} samples"))
    reached.append(("layouts", f"{fleet.layouts:,} times laid out over the machines"))
    reached.append(("idle", f"{fleet.idle:.1%} of machine time"))

    return Group(shown, "", pairs_table(reached))


TRANSFORMER: tuple[Column[Any], ...] = (
    Column("parameters", "number of parameters"),
    Column("operations_per_sample", "floating-point operations per sample, forward and backward"),
    Column("training_days", "days of training"),
    Column("tensor", "devices that share each layer"),
    Column("stages", "pipeline stages"),
    Column("replicas", "pipelines that train in parallel"),
    Column("elements", "tensor elements that a device sends", of=TransformerTraffic),
)


def transformer_table(figures: dict[str, Any]) -> Table:
    """The estimates of a transformer."""
    sent, billions = figures["elements"], figures["parameters"] / 1e9
    operations, days = figures["operations_per_sample"], figures["training_days"]
    layout = ", ".join(f"{part} {figures[part]}" for part in ("tensor", "stages", "replicas"))
    cut, tensor, gradients = sent["cut"], sent["tensor"], sent["batch"]
    rows = [
        ("parameters", f"{billions:.4g} billion"),
        ("operations", f"{operations:.4g} per sample"),
        ("training", f"{days:.3g} days"),
        ("layout", layout),
        ("cut", f"{cut:.4g} elements per microbatch and direction"),
        ("tensor", f"{tensor:.4g} elements per layer and microbatch"),
        ("gradients", f"{gradients:.4g} elements per batch"),
    ]
    return pairs_table(rows)


PROFILES: tuple[Column[Any], ...] = (
    Column("format", "format of the file"),
    Column("model", "name of the model"),
    Column(
        "profiles",
        "measurements, one for each microbatch size",
        each=(
            Column("microbatch", "samples in a microbatch"),
            Column("input_bytes", "size of the inputs of a microbatch"),
            Column(
                "layers",
                "layers in order",
                each=(LayerCost, Column("update_seconds", named="time with this optimizer")),
            ),
        ),
    ),
)
"""The measurements of `spotctl lab parallel profile`, which `spotctl lab parallel plan` reads."""


def profile_table(profiles: Sequence[ModelProfile]) -> Table:
    """A row for each layer and microbatch size."""
    headings = ("forward ms", "backward ms", "output kB", "stash kB", "weights kB")
    rows = plain_table("layer", "microbatch", *headings)
    for profile in profiles:
        for layer in profile.layers:
            times = (layer.forward_seconds, layer.backward_seconds)
            sizes = (layer.output_bytes, layer.stash_bytes, layer.weight_bytes)
            cells = [f"{time * 1e3:.3g}" for time in times]
            cells += [f"{size / 1e3:.4g}" for size in sizes]
            rows.add_row(layer.name, str(profile.microbatch), *cells)

    return rows


EPOCHS: tuple[Column[Any], ...] = (
    Column("batch", "first batch"),
    Column("nodes", "nodes that took part", "nodes", form=list),
    Column(
        "pipelines",
        "for each pipeline, the layers of each stage",
        lambda epoch: [[list(span) for span in spans] for spans in epoch.layout.pipelines],
    ),
    Column(
        "microbatches",
        "microbatches of a batch, by pipeline",
        "layout.shares",
        form=list,
    ),
    Column("tensor", "devices that share each layer", "layout.tensor"),
    Column(
        "pause_seconds",
        "time without training while the nodes changed to this plan; null if they never did",
        lambda epoch: None if epoch.running is None else epoch.running - epoch.began,
    ),
)
TRAINED: tuple[Column[Any], ...] = (
    Column("loss", "mean loss of each batch"),
    Column("redone", "updates redone after the only copy of a layer was lost"),
    Column("plans", "plans that were used one after another", each=EPOCHS),
)


def trained_json(trained: TrainedPipeline, plan: PipelinePlan) -> dict[str, Any]:
    """The JSON of `parallel train --json`."""
    losses = _losses_by_batch(trained, plan)
    return as_json(TRAINED, {"loss": losses, "redone": trained.redone, "plans": trained.history})


def trained_table(trained: TrainedPipeline, plan: PipelinePlan) -> Group:
    """A row for each plan of the run, and the loss."""
    rows = plain_table("from update", "nodes", "stages per pipeline", "pause s", names=3)
    for epoch in trained.history:
        layout, pause = epoch.layout, "-"
        depths = "-".join(str(layout.depth(q)) for q in range(len(layout.pipelines)))
        if epoch.running is not None:
            pause = f"{epoch.running - epoch.began:.3g}"
        rows.add_row(str(epoch.batch), ", ".join(epoch.nodes), depths, pause)

    losses, loss = _losses_by_batch(trained, plan), "-"
    if losses:
        loss = f"{losses[0]:.4g} at first, {losses[-1]:.4g} at the end"
    figures = [
        ("loss", loss),
        ("redone", f"{trained.redone} updates after the only copy of a layer was lost"),
    ]

    return Group(rows, "", pairs_table(figures))


def _losses_by_batch(trained: TrainedPipeline, plan: PipelinePlan) -> list[float]:
    values, means = [trained.losses[k] for k in sorted(trained.losses)], list[float]()
    for i in range(0, len(values), plan.batch):
        of_batch = values[i : i + plan.batch]
        means.append(sum(of_batch) / plan.batch)
    return means


def read_fleet(path: Path) -> list[FleetChange]:
    """The changes of a fleet in order of time; the last one may be empty, and is the end of the
    record.

    A CSV has rows `time,add,NAMES` and `time,remove,NAMES`: either seconds, names separated by `|`
    and a header, or milliseconds and one name, without a header. JSON is an availability trace, as
    `spotctl lab backtest deadline` reads it.
    """
    if ".json" in path.suffixes:
        trace, fleet = read_availability(path), list[FleetChange]()
        there, named, last = list[str](), 0, len(trace) - 1
        # The machines that came last go first.
        for tick, up in enumerate(trace.up.tolist()):
            left, more = tuple(there[up:]), max(up - len(there), 0)
            came = tuple(f"m{named + i}" for i in range(more))
            named += more
            there = [*there[:up], *came]
            if left or came or tick in (0, last):
                moment = float(tick * trace.gap_seconds)
                fleet.append(FleetChange(moment, came, left))

        _check_fleet(path, fleet)
        return fleet

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [row for row in csv.reader(lines) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: cannot be read: {error}") from None

    by_time: dict[float, tuple[list[str], list[str]]] = {}
    has_header = bool(rows) and rows[0][0] == _HEADER
    scale = 1.0 if has_header else 1e3
    for row in rows[has_header:]:
        try:
            at, (kind, names) = float(row[0]) / scale, row[1:3]
        except ValueError:
            at, kind, names = -1.0, "", ""
        changes = kind in (_ADD, _REMOVE)
        # Recorders also note their own actions, such as migrations, without machines.
        if not isfinite(at) or at < 0 or not kind or changes != bool(names):
            written = repr(",".join(row))
            raise BadRequest(
                f"{path}: {written} is no change of a fleet; expected a time, add or remove, and "
                "names"
            )
        added, gone = by_time.setdefault(at, ([], []))
        changed = gone if kind == _REMOVE else added
        if names:
            changed += names.split("|")

    fleet = list[FleetChange]()
    for at, (added, gone) in sorted(by_time.items()):
        change = FleetChange(at, tuple(added), tuple(gone))
        fleet.append(change)
    _check_fleet(path, fleet)
    return fleet


def _check_fleet(path: Path, fleet: list[FleetChange]) -> None:
    there: set[str] = set()
    for change in fleet:
        for name in change.removed:
            if name not in there:
                raise BadRequest(
                    f"{path}: {name} is removed at {change.at:g} s, and was not there; add it "
                    "before"
                )
        there = (there - set(change.removed)) | set(change.added)

    if len(fleet) < 2:
        raise BadRequest(
            f"{path}: a fleet needs changes at two times or more; the last one ends the record"
        )
