"""`python -m bench.pipeline_traces DATA [PLOT.svg]`: recorded fleets of spot machines train a model in pipeline stages.

DATA holds `parcae_*.csv`: machines that were added and removed. The controller is the real one; nodes answer it after
the seconds that their work would take. Next to it: checkpoint-and-restart with the best of several intervals, and a
bound that changes its layout at any moment and at no cost.
"""

from __future__ import annotations

import csv
import heapq
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from agileml.pipeline.elastic import ElasticController, ElasticSettings
from agileml.pipeline.elastic_messages import (
    BatchesDone,
    Instruction,
    LeavePipeline,
    NodeGone,
    NodeJoined,
    NodeReady,
    NodeWarned,
    PipelineEvent,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.layouts import LayoutRules, layouts
from agileml.pipeline.seats import PipelineLayout

LAYERS, LAYER_SECONDS, LAYER_BYTES = 48, 0.03, 370e6
"""A transformer of 1.5 billion parameters: seconds per sample and layer on a V100, weights and Adam's state."""
MICROBATCHES, SAMPLES, LEAST_STAGES, MOST_NODES = 64, 4, 4, 32
"""Microbatches of an update, samples of a microbatch."""
BATCH = MICROBATCHES * SAMPLES
LONGEST = 7200.0
"""Of longer traces, the first two hours are played."""
BANDWIDTH, SETTLE = 1.25e9, 1.0
"""Bytes per second into a node, and seconds that an epoch takes to begin."""
WARNING = 120.0
RESTART = 60.0
"""Seconds to start all processes again."""
INTERVALS = (30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds between checkpoints; writing one costs nothing."""
SAMPLE_SECONDS = LAYERS * LAYER_SECONDS


@dataclass(frozen=True)
class Change:
    """Machines that come or go."""

    at: float
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """Samples that count, samples that were processed again, and samples trained after each number of seconds."""

    trained: float
    redone: float
    curve: tuple[tuple[float, float], ...]


def read_trace(path: Path) -> list[Change]:
    """The changes of a trace, of both formats, whose times are seconds or milliseconds."""
    rows = [row for row in csv.reader(path.read_text().splitlines()) if row[0] != "time_s"]
    scale = 1.0 if "|" in path.read_text() else 1e3
    by_time: dict[float, tuple[list[str], list[str]]] = {}
    for at, kind, names, *_ in rows:
        moment = by_time.setdefault(float(at) / scale, ([], []))
        if kind in ("add", "remove"):
            moment[kind == "remove"].extend(names.split("|"))
    return [Change(at, tuple(added), tuple(gone)) for at, (added, gone) in sorted(by_time.items())]


def batch_seconds(layout: PipelineLayout) -> float:
    """Of one update, forward and backward, filling and draining."""
    stages = zip(layout.pipelines, layout.shares, strict=True)
    return max(
        (share + len(spans) - 1) * max(last - first + 1 for first, last in spans) * LAYER_SECONDS * SAMPLES
        for spans, share in stages
    )


@dataclass
class ElasticReplay:
    """The controller with nodes that take as long as their work would."""

    controller: ElasticController
    queue: list[tuple[float, int, PipelineEvent]] = field(default_factory=list)
    aborted: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = count()
        self._running: tuple[int, float, float] | None = None
        """Batches, start and end of what the nodes are working on."""

    def put(self, at: float, event: PipelineEvent) -> None:
        """An event at a moment."""
        heapq.heappush(self.queue, (at, next(self._order), event))

    def run(self, until: float) -> Outcome:
        """Plays all events up to a moment."""
        while self.queue and self.queue[0][0] <= until:
            now, _, event = heapq.heappop(self.queue)
            epoch = self.controller.epoch
            instructions = self.controller.handle(event, now)
            if self.controller.epoch != epoch:
                self._abort(now)
            for node, instruction in instructions:
                self._follow(node, instruction, now)
            if not self.curve or self.controller.batch * BATCH != self.curve[-1][1]:
                self.curve.append((now, self.controller.batch * BATCH))
        redone = self.controller.redone * BATCH + self.aborted
        return Outcome(self.controller.batch * BATCH, redone, tuple(self.curve))

    def _abort(self, now: float) -> None:
        if self._running is not None and self._running[2] > now:
            batches, began, end = self._running
            self.aborted += batches * BATCH * (now - began) / (end - began)
        self._running = None

    def _follow(self, node: str, instruction: Instruction, now: float) -> None:
        match instruction:
            case TakeSeat(epoch=epoch, layers=layers, sources=sources):
                if layers:
                    moved = sum(LAYER_BYTES for source in sources.values() if source != "initial")
                    self.put(now + SETTLE + moved / BANDWIDTH, NodeReady(node, epoch))
            case RunBatches(epoch=epoch, first=first, last=last):
                length = (last - first) * batch_seconds(self.controller.history[-1].layout)
                self._running = last - first, now, now + length
                self.put(now + length, BatchesDone(node, epoch, {}))
            case LeavePipeline():
                pass


def elastic(trace: Sequence[Change], found: Mapping[int, PipelineLayout], until: float, *, warned: bool) -> Outcome:
    """The elastic pipeline."""
    settings = ElasticSettings("flush", 10**9, found, [LAYER_BYTES] * LAYERS)
    replay = ElasticReplay(ElasticController(settings))
    for change in trace:
        for node in change.removed:
            if warned:
                replay.put(max(change.at - WARNING, 0.0), NodeWarned(node))
            replay.put(change.at, NodeGone(node))
        for node in change.added:
            replay.put(change.at, NodeJoined(node))
    return replay.run(until)


def fleet_sizes(trace: Sequence[Change], until: float) -> list[tuple[float, float, int, bool]]:
    """Spans with a constant number of machines, and whether each began with a loss."""
    size, spans = 0, []
    ends = [change.at for change in trace[1:]] + [until]
    for change, end in zip(trace, ends, strict=True):
        size += len(change.added) - len(change.removed)
        spans.append((change.at, min(end, until), size, bool(change.removed)))
    return [span for span in spans if span[1] > span[0]]


def speed(found: Mapping[int, PipelineLayout], nodes: int) -> float:
    """Samples per second."""
    fitting = [size for size in found if size <= nodes]
    return BATCH / batch_seconds(found[max(fitting)]) if fitting else 0.0


def clairvoyant(spans: Iterable[tuple[float, float, int, bool]], found: Mapping[int, PipelineLayout]) -> Outcome:
    """No pauses, and nothing redone."""
    trained, curve = 0.0, [(0.0, 0.0)]
    for began, end, size, _ in spans:
        trained += (end - began) * speed(found, size)
        curve.append((end, trained))
    return Outcome(trained, 0.0, tuple(curve))


def restarting(
    spans: Iterable[tuple[float, float, int, bool]], found: Mapping[int, PipelineLayout], every: float
) -> Outcome:
    """Restarts from the last checkpoint after a loss, and from a new one when machines come."""
    trained = kept = redone = 0.0
    since, size_before, ready_at, curve = 0.0, 0, 0.0, [(0.0, 0.0)]
    for began, end, size, lost in spans:
        if lost:
            redone, trained = redone + trained - kept, kept
        if size != size_before or lost:
            load = LAYERS * LAYER_BYTES / max(LEAST_STAGES, min(size, LAYERS)) / BANDWIDTH
            kept, since, size_before, ready_at = trained, 0.0, size, began + RESTART + load
        worked, rate = max(end - max(began, ready_at), 0.0), speed(found, size)
        trained, since = trained + worked * rate, since + worked
        kept, since = (trained - since % every * rate, since % every) if since >= every else (kept, since)
        curve.append((end, trained))
    return Outcome(trained, redone, tuple(curve))


def outcomes(path: Path) -> tuple[dict[str, Outcome], float]:
    """What each way of training reaches on a trace, and the machine-seconds that were there."""
    trace = [change for change in read_trace(path) if change.at < LONGEST]
    until = trace[-1].at + 60.0
    names = [name for change in trace for name in change.added]
    rules = LayoutRules("flush", MICROBATCHES, least_stages=LEAST_STAGES)
    found = layouts([LAYER_SECONDS] * LAYERS, rules, min(MOST_NODES, len(names)))
    spans = fleet_sizes(trace, until)
    best = max((restarting(spans, found, every) for every in INTERVALS), key=lambda one: one.trained)
    played = {
        "elastic, warned": elastic(trace, found, until, warned=True),
        "elastic, unwarned": elastic(trace, found, until, warned=False),
        "restart": best,
        "bound": clairvoyant(spans, found),
    }
    return played, sum((end - began) * size for began, end, size, _ in spans)


def lines_of(path: Path, played: Mapping[str, Outcome], machine_seconds: float) -> list[str]:
    """A row for each way of training."""
    bound = played["bound"].trained
    return [
        f"| {path.stem.removeprefix('parcae_')} | {name} | {one.trained:,.0f} | {one.trained / bound:.1%} |"
        f" {one.redone:,.0f} | {1 - (one.trained + one.redone) * SAMPLE_SECONDS / machine_seconds:.1%} |"
        for name, one in played.items()
    ]


def plot(file: Path, found: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Samples over time, one panel for each trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(found), 3.2), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for panel, (name, played) in zip(panels, found.items(), strict=True):
        for way, one in played.items():
            panel.plot([at / 60 for at, _ in one.curve], [samples / 1e3 for _, samples in one.curve], label=way)
        panel.set(title=name.removeprefix("parcae_"), xlabel="minutes", ylabel="thousand samples")
    panels[0].legend(fontsize=7)
    figure.savefig(file)


def main(words: list[str]) -> None:
    """Prints the table, and writes the plot if a file is named."""
    paths = sorted(Path(words[0]).glob("parcae_*.csv")) if words else []
    if not paths or len(words) > 2:
        sys.exit("usage: python -m bench.pipeline_traces DATA [PLOT.svg], a folder with parcae_*.csv")
    print("| trace | training | samples | of the bound | redone | idle |\n| --- | --- | --- | --- | --- | --- |")
    all_played = {}
    for path in paths:
        played, machine_seconds = outcomes(path)
        all_played[path.stem] = played
        print("\n".join(lines_of(path, played, machine_seconds)), flush=True)
    if len(words) > 1:
        plot(Path(words[1]), all_played)


if __name__ == "__main__":
    main(sys.argv[1:])
