"""`python -m bench.pipeline_traces DATA [PLOT.svg]`: recorded fleets of spot machines train a model
in pipeline stages.

DATA holds `parcae_*.csv`: machines that were added and removed. The controller is the real one;
nodes answer it after the seconds that their work would take. Next to it: checkpoint-and-restart
with the best of several intervals, and a bound that changes its layout at any moment and at no
cost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agileml.pipeline.elastic.controller import ElasticController, ElasticSettings
from agileml.pipeline.elastic.layouts import LayoutRules, layouts
from agileml.pipeline.elastic.seats import PipelineLayout
from spotctl.lab.parallel import read_fleet
from spotctl.lab.simulate_fleet import FleetChange, FleetReplay, fleet_sizes, put_fleet

LAYERS, LAYER_SECONDS, LAYER_BYTES = 48, 0.03, 370e6
"""A transformer of 1.5 billion parameters: seconds per sample and layer on a V100, weights and
Adam's state."""
MICROBATCHES, SAMPLES, MIN_STAGES, MAX_NODES = 64, 4, 4, 32
"""Microbatches of an update, samples of a microbatch."""
BATCH = MICROBATCHES * SAMPLES
LONGEST = 7200.0
"""Seconds of a trace that are played."""
BANDWIDTH = 1.25e9
"""Bytes per second into a node."""
WARNING = 120.0
RESTART = 60.0
"""Seconds to start all processes again."""
INTERVALS = (30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds between checkpoints; writing one costs nothing."""
SAMPLE_SECONDS = LAYERS * LAYER_SECONDS


@dataclass(frozen=True)
class TraceOutcome:
    """Samples that count, samples that were processed again, and samples trained after each number
    of seconds.
    """

    trained: float
    redone: float
    curve: tuple[tuple[float, float], ...]


def batch_seconds(layout: PipelineLayout) -> float:
    """Seconds of one update, forward and backward, filling and draining."""
    stages = zip(layout.pipelines, layout.shares, strict=True)
    return max(
        (share + len(spans) - 1)
        * max(last - first + 1 for first, last in spans)
        * LAYER_SECONDS
        * SAMPLES
        for spans, share in stages
    )


def elastic(
    fleet: Sequence[FleetChange],
    options: Mapping[int, PipelineLayout],
    until: float,
    warning: float,
) -> TraceOutcome:
    """The elastic pipeline, with machines that are warned this many seconds before they go, or
    not."""
    sizes = [LAYER_BYTES] * LAYERS
    controller = ElasticController(ElasticSettings("flush", 10**9, options, sizes))
    replay = FleetReplay(
        controller, lambda layout, batches: batches * batch_seconds(layout), sizes, BANDWIDTH
    )
    put_fleet(replay, fleet, warning)
    batches, redone = replay.run(until)
    curve = tuple((at, float(done * BATCH)) for at, done in replay.curve)
    return TraceOutcome(batches * BATCH, redone * BATCH, curve)


def speed(options: Mapping[int, PipelineLayout], nodes: int) -> float:
    """Samples per second."""
    fitting = [size for size in options if size <= nodes]
    return BATCH / batch_seconds(options[max(fitting)]) if fitting else 0.0


def clairvoyant(
    spans: Iterable[tuple[float, float, int, bool]], options: Mapping[int, PipelineLayout]
) -> TraceOutcome:
    """No pauses, and nothing redone."""
    trained, curve = 0.0, [(0.0, 0.0)]
    for began, end, size, _ in spans:
        trained += (end - began) * speed(options, size)
        curve.append((end, trained))
    return TraceOutcome(trained, 0.0, tuple(curve))


def restarting(
    spans: Iterable[tuple[float, float, int, bool]],
    options: Mapping[int, PipelineLayout],
    every: float,
) -> TraceOutcome:
    """Restarts from the last checkpoint after a loss, and from a new one when machines come."""
    trained = kept = redone = 0.0
    since, size_before, ready_at, curve = 0.0, 0, 0.0, [(0.0, 0.0)]
    for began, end, size, lost in spans:
        if lost:
            redone, trained = redone + trained - kept, kept
        if size != size_before or lost:
            load = LAYERS * LAYER_BYTES / max(MIN_STAGES, min(size, LAYERS)) / BANDWIDTH
            kept, since, size_before, ready_at = trained, 0.0, size, began + RESTART + load
        worked, rate = max(end - max(began, ready_at), 0.0), speed(options, size)
        trained, since = trained + worked * rate, since + worked
        kept, since = (
            (trained - since % every * rate, since % every) if since >= every else (kept, since)
        )
        curve.append((end, trained))
    return TraceOutcome(trained, redone, tuple(curve))


def outcomes(path: Path) -> tuple[dict[str, TraceOutcome], float]:
    """The outcome of each way of training on a trace, and the machine-seconds of the trace."""
    trace = [change for change in read_fleet(path) if change.at < LONGEST]
    until = trace[-1].at + 60.0
    names = [name for change in trace for name in change.added]
    rules = LayoutRules("flush", MICROBATCHES, least_stages=MIN_STAGES)
    options = layouts([LAYER_SECONDS] * LAYERS, rules, min(MAX_NODES, len(names)))
    spans = fleet_sizes(trace, until)
    best = max(
        (restarting(spans, options, every) for every in INTERVALS),
        key=lambda outcome: outcome.trained,
    )
    played = {
        "elastic, warned": elastic(trace, options, until, WARNING),
        "elastic, unwarned": elastic(trace, options, until, 0.0),
        "restart": best,
        "bound": clairvoyant(spans, options),
    }
    return played, sum((end - began) * size for began, end, size, _ in spans)


def lines_of(path: Path, played: Mapping[str, TraceOutcome], machine_seconds: float) -> list[str]:
    """A row for each way of training."""
    bound = played["bound"].trained
    return [
        f"| {path.stem.removeprefix('parcae_')} | {name} | {outcome.trained:,.0f} | "
        f"{outcome.trained / bound:.1%} |"
        f" {outcome.redone:,.0f} | "
        f"{1 - (outcome.trained + outcome.redone) * SAMPLE_SECONDS / machine_seconds:.1%} |"
        for name, outcome in played.items()
    ]


def plot(file: Path, traces: Mapping[str, Mapping[str, TraceOutcome]]) -> None:
    """Samples over time, one panel for each trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(traces), 3.2), layout="constrained")
    panels = figure.subplots(1, len(traces), squeeze=False)[0]
    for panel, (name, played) in zip(panels, traces.items(), strict=True):
        for way, outcome in played.items():
            panel.plot(
                [at / 60 for at, _ in outcome.curve],
                [samples / 1e3 for _, samples in outcome.curve],
                label=way,
            )
        panel.set(title=name.removeprefix("parcae_"), xlabel="minutes", ylabel="thousand samples")
    panels[0].legend(fontsize=7)
    figure.savefig(file)


def main(words: list[str]) -> None:
    """Prints the table, and writes the plot if a file is named."""
    paths = sorted(Path(words[0]).glob("parcae_*.csv")) if words else []
    if not paths or len(words) > 2:
        sys.exit(
            "usage: python -m bench.pipeline_traces DATA [PLOT.svg], a folder with parcae_*.csv"
        )
    print(
        "| trace | training | samples | of the bound | redone | idle |\n| --- | --- | --- | --- | "
        "--- | --- |"
    )
    all_played = {}
    for path in paths:
        played, machine_seconds = outcomes(path)
        all_played[path.stem] = played
        print("\n".join(lines_of(path, played, machine_seconds)), flush=True)
    if len(words) > 1:
        plot(Path(words[1]), all_played)


if __name__ == "__main__":
    main(sys.argv[1:])
