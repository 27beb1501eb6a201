"""The figures behind decision 50: `python -m bench.regions WHAT FOLDER`, with the folder of the records (shared/data).

`published` plays every window of the published study and compares the mean cost of each policy with the published one.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bidbrain.backtest.regions.policies import ONE_ZONE, played
from bidbrain.backtest.regions.rules import Window
from spotctl.files.regions_scenario import load

SAME_NAMES = ("up-one-zone", "up-switch", "skynomad")


def main(words: Sequence[str]) -> None:
    """Prints what the first argument names."""
    tasks: dict[str, Callable[[Path], None]] = {"published": published}
    if len(words) != 2 or words[0] not in tasks:
        sys.exit(f"usage: python -m bench.regions {{{','.join(tasks)}}} FOLDER")
    tasks[words[0]](Path(words[1]))


@dataclass(frozen=True)
class PublishedWindow:
    """A window of the study, and what its policies cost there; single zones are named with their policy."""

    trace: str
    window: Window
    usd: dict[tuple[str, str], float]


def published_windows(folder: Path) -> Iterator[PublishedWindow]:
    """The windows of the study that a job can meet."""
    groups: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
    with (folder / "regions" / "published_costs.csv").open() as file:
        for row in csv.DictReader(file):
            names = ("trace", "zones", "start_hours", "work_hours", "deadline_hours", "checkpoint_gb")
            key = tuple(row[name] for name in names)
            groups.setdefault(key, {})[row["policy"], row["only_zone"]] = float(row["cost_usd"])
    for (trace, zones, start, work, deadline, gb), usd in groups.items():
        job = {"work_hours": float(work), "deadline_hours": float(deadline), "checkpoint_gb": float(gb)}
        window = window_of(folder, trace, zones.split(), float(start), job)
        if window.job.possible(window.record.gap):
            yield PublishedWindow(trace, window, usd)


def window_of(folder: Path, trace: str, zones: list[str], start: float, job: dict[str, float]) -> Window:
    """One window of the study's records, read as a scenario file."""
    records = folder.resolve()
    files = {
        "h100": (["regions/h100_up_week1.csv.gz"], "regions/h100_prices.csv"),
        "v100": (["availability/availability__1-node__aws-02-15-2023*"], "regions/v100_prices.csv.gz"),
    }
    traces, prices = files[trace]
    scenario = {
        "traces": [str(records / name) for name in traces],
        "prices": str(records / prices),
        "on_demand": 3.06,
        "zones": zones,
        "job": job,
        "starts": [start],
        "rules": "published",
        "moving": {"pairs": {"us-east-1 us-east-2": 0.01}},
    }
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "scenario.yaml"
        path.write_text(yaml.safe_dump(scenario))
        return load(path).windows[0]


def published(folder: Path) -> None:
    """Mean costs of the study's windows with slack above 1, ours and published."""
    sums: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in published_windows(folder):
        for policy in (*SAME_NAMES, "optimal-published", "optimal"):
            for result in played(one.window, policy):
                zone = result.window.record.zones[0] if policy == ONE_ZONE else ""
                theirs = one.usd[policy if policy in SAME_NAMES else "optimal", zone]
                sums.setdefault((one.trace, policy), []).append((result.outcome.bill.total, theirs))
    print(f"{'record':8}{'policy':20}{'windows':>8}{'ours $':>12}{'published $':>12}{'ratio':>9}")
    for (trace, policy), costs in sums.items():
        ours, theirs = (sum(column) / len(costs) for column in zip(*costs, strict=True))
        print(f"{trace:8}{policy:20}{len(costs):8}{ours:12.3f}{theirs:12.3f}{ours / theirs:9.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
