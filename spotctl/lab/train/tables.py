"""A training run: a line per clock, and a summary table."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from agileml.core.events import Iteration
from agileml.iteration_log import spans_text
from spotctl.show.layout import pairs_table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def line(iteration: Iteration) -> str:
    """`clock 3  stage 1  nodes 1+4  loss 0.5  20 ms`."""
    return (
        f"clock {iteration.clock}  stage {iteration.stage}  nodes {iteration.reliable}+{iteration.transient}"
        f"  loss {_loss(iteration.loss)}  {seconds(iteration.seconds)}"
    )


def events(iteration: Iteration) -> list[str]:
    """The events of a clock, a line each."""
    return [f"clock {iteration.clock}: {event}" for event in iteration.events]


def summary(history: Sequence[Iteration], ending: Mapping[str, Any], *, virtual: bool) -> Table:
    """The summary of a run, from its clocks and the last line of its log. `virtual`: its time was simulated."""
    return pairs_table(_rows(history, ending, virtual))


def _rows(history: Sequence[Iteration], ending: Mapping[str, Any], virtual: bool) -> list[tuple[str, str]]:
    slowest = max(history, key=lambda iteration: iteration.seconds)
    losses = [iteration for iteration in history if iteration.loss is not None]
    sums = [iteration.sums for iteration in history]
    push, pull, backup = (
        sum(getattr(clock_sums, name) for clock_sums in sums) for name in ("pushed", "pulled", "backup")
    )
    lost = "".join(f", {ending[f'updates_{what}']:,} {what}" for what in ("lost", "doubled"))
    total = seconds(sum(iteration.seconds for iteration in history))
    rows = [
        ("clocks", f"{ending['clocks']:,} in {total}{' of virtual time' if virtual else ''}"),
        (
            "time per clock",
            f"{seconds(median(iteration.seconds for iteration in history))} (median),"
            f" at most {seconds(slowest.seconds)} (clock {slowest.clock})",
        ),
        ("stages", ", ".join(str(stage) for stage in sorted({iteration.stage for iteration in history}))),
        ("nodes", f"{_nodes(history[0])} at the start, {_nodes(history[-1])} at the end"),
        ("evictions survived", f"{ending['evictions']:,}"),
        ("failures survived", f"{ending['failures']:,}"),
        ("chunks redone", f"{sum(iteration.redone for iteration in history):,}"),
        *((("clocks redone", spans_text(again)),) if (again := ending.get("redone_clocks")) else ()),
        ("updates", f"{ending['updates_sent']:,} sent, {ending['updates_applied']:,} applied{lost}"),
        ("data moved", f"push {size(push)}, pull {size(pull)}, backup {size(backup)}"),
        ("model", f"sha256 {ending['model_sha256']}"),
    ]
    if any(clock_sums.waited_for for clock_sums in sums):
        least, most = sums[-1].least_counted, sums[-1].most_counted
        left_out = sum(clock_sums.dropped_chunks for clock_sums in sums)
        shares = f"each shard counted {least:.2f} to {most:.2f} times as often as the mean"
        rows.append(("left out", f"{left_out:,} chunks of slow workers; {shares}"))
    if losses:
        first = f"{_loss(losses[0].loss)} before clock {losses[0].clock}"
        last = f"{_loss(losses[-1].loss)} before clock {losses[-1].clock}"
        if ending["loss"] is not None:
            last = f"{_loss(ending['loss'])} after clock {ending['clocks']}"
        rows.insert(2, ("loss", f"{first}, {last}"))
    return rows


def seconds(span: float) -> str:
    """A duration with three digits: `35 ms`, `1.2 s`, `4 min 12 s`."""
    if span < 1:
        return f"{span * 1000:.3g} ms"
    return f"{span:.3g} s" if span < 100 else f"{int(span) // 60} min {int(span) % 60} s"


def size(count: float) -> str:
    """Bytes with a binary unit: `1.5 KiB`."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if not unit else f"{count:.1f} {_UNITS[unit]}"


def _nodes(iteration: Iteration) -> str:
    return f"{iteration.reliable}+{iteration.transient}"


def _loss(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4g}"
