"""The figures behind decisions 30 and 31: `python -m bench.regions WHAT FOLDER`; the folder is that
of the records.

`ours` plays `regions`, `skynomad` and the optimum over the study's windows, and over random zones,
starts and deadlines; `classes` over 30 random windows for each record and number of zones, and over
all of them together. `gangs` shows what elasticity is worth on the record of partial capacity.
`published` plays every window of the published study and compares the mean cost of each policy with
the published one.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from bidbrain.arrays import Floats
from bidbrain.lab.regions.policies import ONE_ZONE, played
from bidbrain.lab.regions.replay import RegionJob, Window
from pricing_data.units import HOUR
from spotctl.lab.backtest.regions_scenario import load

ALL_ZONES = {
    "v100": [
        f"us-{zone}"
        for zone in "east-1a east-1c east-1d east-1f east-2a east-2b west-2a west-2b west-2c".split()
    ],
    "h100": [
        *"asia-south2-b asia-southeast1-b asia-southeast1-c europe-west1-c europe-west3-c us-central1-a".split(),
        *"us-central1-b us-central1-c us-east4-a us-east4-b us-east5-a us-west1-a us-west1-b".split(),
    ],
}
LONGEST = {"v100": 1000.0, "h100": 155.0}
SAME_NAMES = ("up-one-zone", "up-switch", "skynomad")


def main(words: Sequence[str]) -> None:
    """Prints what the first argument names."""
    tasks: dict[str, Callable[[Path], None]] = {
        "published": published,
        "ours": ours,
        "classes": classes,
        "gangs": gangs,
    }
    if len(words) != 2 or words[0] not in tasks:
        sys.exit(f"usage: python -m bench.regions {{{','.join(tasks)}}} FOLDER")
    folder = Path(words[1])
    if not (folder / "regions").is_dir():
        sys.exit(f"{folder} has no folder regions, with the published traces and costs of regions")
    tasks[words[0]](folder)


@dataclass(frozen=True)
class PublishedWindow:
    """A window of the study, and what its policies cost there; single zones are named with their
    policy.
    """

    trace: str
    window: Window
    usd: dict[tuple[str, str], float]


def published_windows(folder: Path) -> Iterator[PublishedWindow]:
    """The windows of the study that a job can meet."""
    groups: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
    with (folder / "regions" / "published_costs.csv").open() as file:
        for row in csv.DictReader(file):
            names = (
                "trace",
                "zones",
                "start_hours",
                "work_hours",
                "deadline_hours",
                "checkpoint_gb",
            )
            key = tuple(row[name] for name in names)
            groups.setdefault(key, {})[row["policy"], row["only_zone"]] = float(row["cost_usd"])
    for (trace, zones, start, work, deadline, gb), usd in groups.items():
        job = {
            "work_hours": float(work),
            "deadline_hours": float(deadline),
            "checkpoint_gb": float(gb),
        }
        window = window_of(folder, trace, zones.split(), float(start), job)
        if window.job.possible(window.record.gap):
            yield PublishedWindow(trace, window, usd)


def window_of(
    folder: Path, trace: str, zones: list[str], start: float, job: dict[str, float]
) -> Window:
    """One window of the study's records, read as a scenario file."""
    records = folder.resolve()
    files = {
        "h100": (["regions/h100_up_week1.csv.gz"], "regions/h100_prices.csv"),
        "probes": (["regions/h100_probes_week1.csv.gz"], "regions/h100_prices.csv"),
        "v100": (
            ["availability/availability__1-node__aws-02-15-2023*"],
            "regions/v100_prices.csv.gz",
        ),
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
        windows, _ = load(path)
        return windows[0]


def published(folder: Path) -> None:
    """Mean costs of the study's windows with slack above 1, ours and published."""
    sums: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for entry in published_windows(folder):
        for policy in (*SAME_NAMES, "optimal-published", "optimal"):
            for result in played(entry.window, policy):
                zone = result.window.record.zones[0] if policy == ONE_ZONE else ""
                theirs = entry.usd[policy if policy in SAME_NAMES else "optimal", zone]
                sums.setdefault((entry.trace, policy), []).append((result.bill.total, theirs))
    print(f"{'record':8}{'policy':20}{'windows':>8}{'ours $':>12}{'published $':>12}{'ratio':>9}")
    for (trace, policy), costs in sums.items():
        ours, theirs = (sum(column) / len(costs) for column in zip(*costs, strict=True))
        print(f"{trace:8}{policy:20}{len(costs):8}{ours:12.3f}{theirs:12.3f}{ours / theirs:9.4f}")


def random_windows(
    folder: Path,
    trace: str,
    least: int,
    most: int,
    gb: float = 50.0,
    count: int = 10,
    seed: int = 20,
) -> Iterator[Window]:
    """Windows with random zones, starts and slacks."""
    rng = np.random.default_rng(seed)
    whole = window_of(
        folder, trace, ALL_ZONES[trace], 0.0, {"work_hours": 1.0, "deadline_hours": LONGEST[trace]}
    )
    for _ in range(count):
        zones = rng.choice(ALL_ZONES[trace], int(rng.integers(least, most + 1)), replace=False)
        slack, deadline = float(rng.choice([1.1, 1.2, 1.35, 1.5, 2.0])), 52 * HOUR
        record = whole.record.only([str(zone) for zone in zones])
        job = RegionJob(round(deadline / slack), deadline, HOUR // 5, gb)
        yield Window.of(
            record, int(rng.integers(0, record.steps - job.steps(record.gap))), job, whole.rules
        )


def ours(folder: Path) -> None:
    """Costs over the optimum's in sums, and the ratio of ours to skynomad's: of the sums, of the
    medians, and by window its median and 90th percentile. The last column is the 95% interval of
    the mean excess less that of plain failover (`up-switch`)."""
    study = list(published_windows(folder))
    sweeps = {
        f"{trace}: the study": [entry.window for entry in study if entry.trace == trace]
        for trace in ALL_ZONES
    }
    for trace in ALL_ZONES:
        sweeps[f"{trace}: random"] = list(random_windows(folder, trace, 6, 9))
        sweeps[f"{trace}: up to 5 zones"] = list(random_windows(folder, trace, 2, 5))
        sweeps[f"{trace}: 1 TB"] = list(random_windows(folder, trace, 6, 9, gb=1000.0))
    print(HEADER)
    for name, windows in sweeps.items():
        print(_row(name, list(map(_played, windows))), flush=True)


def classes(folder: Path) -> None:
    """Costs by the number of zones that a job may use, on windows of their own, and over all
    windows.
    """
    print(HEADER)
    everything = list[Played]()
    for trace in ALL_ZONES:
        for name, least, most in (("2", 2, 2), ("3 to 5", 3, 5), ("6 to 9", 6, 9)):
            drawn = random_windows(folder, trace, least, most, count=30, seed=38)
            rows = list(map(_played, drawn))
            everything += rows
            print(_row(f"{trace}: {name} zones", rows), flush=True)
    print(_row("all", everything))


@dataclass(frozen=True)
class Played:
    """The cost of a window by policy, and whether `regions` missed its deadline."""

    optimal: float
    skynomad: float
    regions: float
    failover: float
    missed: bool


def _played(window: Window) -> Played:
    outcomes = [
        played(window, policy)[0] for policy in ("optimal", "skynomad", "regions", "up-switch")
    ]
    optimal, skynomad, regions, failover = (outcome.bill.total for outcome in outcomes)
    return Played(optimal, skynomad, regions, failover, outcomes[2].missed)


HEADER = (
    f"{'windows':24}{'count':>6}{'skynomad':>10}{'regions':>9}{'ratio':>7}{'medians':>9}{'median':>8}{'p90':>7}"
    f"{'misses':>8}{'less failover':>18}"
)


def _row(name: str, rows: Sequence[Played]) -> str:
    costs = np.array([[row.optimal, row.skynomad, row.regions, row.failover] for row in rows])
    theirs, own, _ = costs.sum(axis=0)[1:] / costs.sum(axis=0)[0] - 1
    by_window = (costs[:, 2] / costs[:, 0] - 1) / np.maximum(costs[:, 1] / costs[:, 0] - 1, 1e-3)
    typical = np.median(costs[:, 2] / costs[:, 0] - 1) / np.median(costs[:, 1] / costs[:, 0] - 1)
    middle, worse = np.quantile(by_window, (0.5, 0.9))
    figures = f"{theirs:10.3f}{own:9.3f}{own / theirs:7.2f}{typical:9.2f}{middle:8.2f}{worse:7.2f}"
    low, high = _interval((costs[:, 2] - costs[:, 3]) / costs[:, 0])
    return (
        f"{name:24}{len(rows):6}{figures}{sum(row.missed for row in rows):8}{low:9.3f} to "
        f"{high:.3f}"
    )


def _interval(differences: Floats) -> tuple[float, float]:
    """The 95% interval of the mean of paired differences, from resampled windows."""
    drawn = np.random.default_rng(7).choice(differences, (4000, differences.size)).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    return low, high


def gangs(folder: Path) -> None:
    """Jobs of 24 hours in 36 on 4, 8 and 16 machines: all at once, or elastic from one machine
    up."""
    print(
        f"{'machines':>8}{'at least':>9}{'windows':>8}{'on demand $':>13}{'regions $':>11}{'share':>7}{'misses':>8}"
    )
    for machines in (4, 8, 16):
        for least in (machines, 1):
            job = {
                "work_hours": 24.0,
                "deadline_hours": 36.0,
                "machines": machines,
                "at_least": least,
            }
            starts = (0.0, 24.0, 48.0, 72.0, 96.0)
            windows = [
                window_of(folder, "probes", ALL_ZONES["h100"], start, job) for start in starts
            ]
            listed, ours = (
                [played(window, policy)[0] for window in windows]
                for policy in ("on-demand", "regions")
            )
            usd = [
                sum(outcome.bill.total for outcome in outcomes) / len(windows)
                for outcomes in (listed, ours)
            ]
            misses = sum(outcome.missed for outcome in ours)
            figures = f"{usd[0]:13,.0f}{usd[1]:11,.0f}{usd[1] / usd[0]:7.3f}{misses:8}"
            print(f"{machines:8}{least:9}{len(windows):8}{figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
