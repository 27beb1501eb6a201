"""Is what `spotctl plan --json` states right? Plans in recorded availability: python -m
bench.plan_scores

Each plan is made by the command itself, in a home that has what a user would have then: prices
alone (`nothing`), the records of three own runs in the days before (`runs`), or the imported record
of the zone up to then (`record`). The plan's decision object is then run on what really followed.

The prior of spells is fitted to some of the records, and its width was chosen on others (`SEEN`);
those that had no part in it, among them all of Google Cloud, are summed up by themselves.
`constant` is the score there of one interval for every plan: P10 and P90 of what jobs paid in the
records that were seen. `--out` records each plan, as a line of JSON, so that two commits can be
compared plan by plan. `--plot PICTURE FILE...` draws the mean score of each zone and kind of home
that such files record, and plans nothing.

Prices are those of `../shared/data/regions/v100_prices.csv.gz` in its zones, elsewhere a constant
30% of on demand.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from bench.forecast import realize
from bench.forecast_worlds import World, job
from bidbrain.replay.market import Capacity
from pricing_data.availability import AvailabilitySpan
from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.ingest import ingest
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.sources.observations import read_availability
from pricing_data.store.store import PriceStore
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, format_time, parse_time
from spotctl.cli.app import main as command_line
from spotctl.files.job.reader import load
from spotctl.home import config
from spotctl.run.start.launch_plans import stored_plans
from spotctl.show.plots import BLUE, INK, ORANGE, PURPLE, panels, save_plot

FOLDER = Path("../shared/data")
TYPES = {
    "v100_1": ("p3.2xlarge", 8, 3.06),
    "v100_8": ("p3.16xlarge", 64, 24.48),
    "k80_1": ("p2.xlarge", 4, 0.90),
    "k80_8": ("p2.8xlarge", 32, 7.20),
    "intel_64": ("c6i.16xlarge", 64, 2.72),
    "c3-88": ("c3-standard-88", 88, 4.60),
}
SEEN = ("availability__1-node__", "preemption__1-node__aws-")
"""The beginnings of the names of the records that had a part in the prior of spells."""
KINDS = ("nothing", "runs", "record")
MACHINES = 8
JOB = """name: job
kind: command
run: train
nodes: 1
checkpoint: {{path: ./saved, every: 10m}}
resources: {{clouds: [{cloud}], types: [{type}], regions: [{region}]}}
"""


@dataclass(frozen=True)
class ZoneRecord:
    """The availability of one zone, with its prices."""

    name: str
    market: Market
    path: Path
    world: World
    start: int

    @property
    def job(self) -> str:
        """The text of a job on one machine of the zone's type, in its region."""
        market = self.market
        return JOB.format(cloud=market.cloud, type=market.instance_type, region=market.region)


@dataclass(frozen=True)
class PlanOutcome:
    """A plan's figures, and what its job paid and took; costs as shares of the on-demand cost."""

    zone: str
    at: str
    percentiles: tuple[float, ...]
    low: float
    expected: float
    high: float
    paid: float
    hours_low: float
    hours_high: float
    hours: float
    seconds: float

    @property
    def by_rank(self) -> float:
        """The chance that the outcome is between P10 and P90 if ties are broken at random."""
        known, slack = (
            np.array(self.percentiles) + 1e-9 * np.arange(len(self.percentiles)),
            1e-3 * self.paid,
        )
        levels = np.linspace(0, 1, known.size)
        below = float(np.interp(self.paid - slack, known, levels, left=0.0, right=1.0))
        upto = float(np.interp(self.paid + slack, known, levels, left=0.0, right=1.0))
        if upto - below < 1e-6:
            return float(0.1 <= below <= 0.9)
        return max(min(upto, 0.9) - max(below, 0.1), 0.0) / (upto - below)

    @property
    def interval_score(self) -> float:
        """Width of the interval, and ten times what the outcome is outside of it."""
        return interval_score(self.low, self.high, self.paid)


def interval_score(low: float, high: float, value: float) -> float:
    """The interval score of a P10 and a P90: less is better."""
    return high - low + 10 * (max(low - value, 0.0) + max(value - high, 0.0))


def zone_records(folder: Path, only: str = "") -> Iterator[ZoneRecord]:
    """Each record of a zone, with prices from where its zone has some."""
    for path in sorted((folder / "availability").glob("*__*__*.json.gz")):
        if only in path.name:
            yield _zone_record(folder, path)


def _zone_record(folder: Path, path: Path) -> ZoneRecord:
    name = path.name.removesuffix(".json.gz")
    _, _, begun, place = name.split("__")
    zone, kind = place.split("_", 1)
    cloud, month, day, year = begun.split("-")
    start = parse_time(f"{year}-{month}-{day}")
    type_, vcpus, listed = TYPES[kind]
    market = Market(cloud, zone[:-1].rstrip("-"), zone, type_)
    trace = read_availability(path)
    times = start + np.arange(len(trace), dtype=np.int64) * trace.gap_seconds * SECOND
    kept = np.flatnonzero(np.diff(trace.up, prepend=-1))
    machines = trace.up * MACHINES // max(trace.wanted, 1)
    on_demand = round(listed * 10**9)
    events = _prices(folder, market, start, on_demand)
    rows = FetchedRows(
        prices=PriceBatch.of(events),
        types=(InstanceType(cloud, type_, vcpus, 61.0, None, 0),),
        on_demand=(
            OnDemandPrice(
                cloud, market.region, type_, "linux", start - 30 * DAY, on_demand, "a list"
            ),
        ),
    )
    store = PriceStore(Path(tempfile.mkdtemp(prefix="zone-")))
    store.commit(rows)
    library = Library(store)
    table = library.table(library.select(Selection(clouds=(cloud,))))
    learn = min(7 * DAY, (int(times[-1]) - start) // 2)
    world = World(
        name, table, Catalog(rows.types, rows.on_demand), job(cloud, (type_,)), start + learn, int(times[-1]),
        capacities={market: Capacity(times[kept], machines[kept].astype(np.int64))},
    )  # fmt: skip
    return ZoneRecord(name, market, path, world, start)


def _prices(folder: Path, market: Market, start: int, on_demand: int) -> list[PriceEvent]:
    with tempfile.TemporaryDirectory() as work:
        store = PriceStore(Path(work))
        ingest(store, folder / "regions" / "v100_prices.csv.gz")
        known = {str(series.market): series for series in store.table()}
    end = start + 60 * DAY
    series = known.get(str(market))
    if series is None or not series.first <= start + 2 * DAY <= series.last:
        return [
            PriceEvent(market, at, on_demand * 3 // 10) for at in (start - 14 * DAY, start, end)
        ]
    prices = [
        PriceEvent(market, int(at), int(price))
        for at, price in zip(series.times, series.prices, strict=True)
    ]
    return [
        PriceEvent(market, start - 14 * DAY, prices[0].price),
        *prices,
        PriceEvent(market, end, prices[-1].price),
    ]


def check_zone(zone: ZoneRecord, kind: str, hours: float, count: int) -> list[PlanOutcome]:
    """Plans one job at random moments of a zone, and runs each plan."""
    chance = np.random.default_rng(crc32(zone.name.encode()))
    latest = zone.world.end - round(4 * hours * HOUR) - 8 * HOUR
    moments = np.sort(
        chance.integers(zone.world.begin, max(latest, zone.world.begin + 1), count)
    ).tolist()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(zone.job)
        for number, at in enumerate(moments):
            print(
                f"\r{zone.name}, {kind}: {number} of {count}", end="", file=sys.stderr, flush=True
            )
            home = home_of(Path(folder) / str(number), zone, kind, at)
            outcomes.append(_plan_and_run(zone, home, file, at // SECOND * SECOND, hours))
    print("\r", " " * 79, "\r", sep="", end="", file=sys.stderr, flush=True)
    return outcomes


def home_of(home: Path, zone: ZoneRecord, kind: str, at: int) -> Path:
    """A home with prices, and with the availability that its user observed, or imported, until a
    moment.
    """
    store, world = PriceStore(home / "prices"), zone.world
    if kind == "record":
        # Not all names of the files say which machine they are of.
        content = json.loads(gzip.decompress(zone.path.read_bytes()))
        content["metadata"] |= {"market": str(zone.market), "start": format_time(zone.start)}
        home.mkdir(parents=True)
        (trace := home / "trace.json").write_text(json.dumps(content))
        ingest(store, trace)
    if kind == "runs":
        store.commit(FetchedRows(availability=tuple(_own_runs(zone, at))))
    store.commit(
        FetchedRows(
            prices=PriceBatch.of(
                PriceEvent(series.market, int(time), int(price))
                for series in world.table
                for time, price in zip(series.times, series.prices, strict=True)
            ),
            types=world.catalog.types,
            on_demand=world.catalog.prices,
        )
    )
    return home


def _own_runs(zone: ZoneRecord, at: int) -> Iterator[AvailabilitySpan]:
    """The observations of three jobs that asked for a machine whenever they had none, in the days
    before.
    """
    chance, capacity = np.random.default_rng(at % 2**31), zone.world.capacities[zone.market]
    for number, days in enumerate((5, 3, 1)):
        moment = at - days * DAY + int(chance.integers(12 * HOUR))
        end, source = moment + 4 * HOUR, f"run {number} of another job"
        while moment < end:
            if capacity.at(moment) == 0:
                yield AvailabilitySpan(zone.market, moment, moment, 0, 1, "refused", source)
                moment += 10 * MINUTE
                continue
            lost = capacity.first_below(1, moment) or end
            yield AvailabilitySpan(
                zone.market,
                moment,
                min(lost, end),
                1,
                1,
                "evicted" if lost < end else "returned",
                source,
            )
            moment = lost + 2 * MINUTE


def _plan_and_run(zone: ZoneRecord, home: Path, file: Path, at: int, hours: float) -> PlanOutcome:
    asked = ("--at", format_time(at), "--hours", f"{hours:g}h")
    before = time.process_time()
    answer = plan_json(home, file, *asked)
    seconds = time.process_time() - before
    stated = answer["expected"]
    (planned,) = stored_plans([load(file)], config.load(os.environ, home), asked[1], asked[3]).plans
    outcome, _ = realize(
        planned, zone.world, dict(zip(zone.world.table.markets, zone.world.table, strict=True))
    )
    whole = answer["on_demand_usd"]
    return PlanOutcome(
        zone.name,
        asked[1],
        tuple(value / whole for value in stated["cost_percentiles_usd"]),
        stated["cost_p10_usd"] / whole,
        stated["cost_usd"] / whole,
        stated["cost_p90_usd"] / whole,
        outcome.usd / whole,
        stated["hours_p10"],
        stated["hours_p90"],
        outcome.hours,
        seconds,
    )


def plan_json(home: Path, file: Path, *words: str) -> Any:  # noqa: ANN401  # JSON is any value
    """The answer of `spotctl plan --json`; raises if the command fails."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            command_line(["--home", str(home), "plan", str(file), "--json", *words])
        except SystemExit as ended:
            code = ended.code
    if code:
        raise RuntimeError(f"plan ended with {code}: {err.getvalue()}")
    return json.loads(out.getvalue())


def summary(name: str, outcomes: Sequence[PlanOutcome]) -> str:
    """One line of the table."""
    paid = np.array([outcome.paid for outcome in outcomes])
    inside = np.mean(
        [outcome.low * 0.999 <= outcome.paid <= outcome.high * 1.001 for outcome in outcomes]
    )
    time_in = np.mean([o.hours_low * 0.999 <= o.hours <= o.hours_high * 1.001 for o in outcomes])
    above = np.mean([outcome.paid > outcome.high * 1.001 for outcome in outcomes])
    ratio = np.median([outcome.paid / outcome.expected for outcome in outcomes])
    return (
        f"{name:58} {len(paid):5} {inside:6.0%} {np.mean([o.by_rank for o in outcomes]):8.0%} "
        f"{above:9.0%} {ratio:9.2f} {np.mean([o.interval_score for o in outcomes]):7.3f}"
        f" {np.median([o.high - o.low for o in outcomes]):7.3f} {time_in:9.0%}"
        f" {np.median([o.seconds for o in outcomes]):6.2f}"
    )


def groups(outcomes: Sequence[PlanOutcome]) -> Iterator[str]:
    """The lines of all zones, of those that had a part in the prior, and of the others."""
    seen = [outcome for outcome in outcomes if outcome.zone.startswith(SEEN)]
    others = [outcome for outcome in outcomes if not outcome.zone.startswith(SEEN)]
    yield summary("all", outcomes)
    if seen and others:
        yield summary("seen when the prior was made", seen)
        yield summary("not seen", others)
        low, high = np.quantile([outcome.paid for outcome in seen], (0.1, 0.9)).tolist()
        yield f"constant {np.mean([interval_score(low, high, outcome.paid) for outcome in others]):.3f}"


def plot(files: Sequence[Path], path: Path) -> None:
    """The mean interval score of each zone and kind of home, next to that of one interval for all
    plans.
    """
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    colors = dict(zip(KINDS, (ORANGE, PURPLE, BLUE), strict=True))
    known = [(line.pop("home"), PlanOutcome(**line)) for line in lines]
    names = sorted({outcome.zone for _, outcome in known}, reverse=True)
    figure, (axes,) = panels(8.4, 0.8 + 0.22 * len(names))
    for kind, color in colors.items():
        by_zone = [
            [
                outcome.interval_score
                for home, outcome in known
                if (home, outcome.zone) == (kind, name)
            ]
            for name in names
        ]
        drawn = [(np.mean(scores), row) for row, scores in enumerate(by_zone) if scores]
        if drawn:
            axes.plot(*zip(*drawn, strict=True), "o", color=color, ms=5, label=kind)
    paid = np.array([outcome.paid for _, outcome in known])
    low, high = np.quantile(paid, (0.1, 0.9)).tolist()
    constant = float(np.mean([interval_score(low, high, value) for value in paid.tolist()]))
    axes.axvline(constant, color=INK, linestyle="--", linewidth=1, label="one interval for all")
    axes.set_yticks(
        range(len(names)),
        [name.replace("availability__", "").replace("preemption__", "") for name in names],
    )
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlim(left=0)
    axes.set_xlabel("interval score, in shares of the cost on demand (less is better)")
    axes.legend(frameon=False, fontsize=8)
    save_plot(figure, path)


HEADER = (
    f"{'zone':58} {'plans':>5} {'in':>6} {'by rank':>8} {'above P90':>9} {'paid/exp':>9} "
    f"{'score':>7} {'width':>7} {'hours in':>9} {'cpu s':>6}"
)


def main() -> None:
    """Prints a table for each kind of home."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="plans in each zone")
    parser.add_argument("--hours", type=float, default=4.0, help="length of the job")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of recorded markets")
    parser.add_argument(
        "--homes", nargs="*", default=list(KINDS), choices=KINDS, help="what the user has"
    )
    parser.add_argument("--only", default="", help="only zones whose name contains this")
    parser.add_argument("--out", type=Path, help="file that gets a line of JSON for each plan")
    parser.add_argument(
        "--plot", type=Path, nargs="+", help="picture of the scores in the files that follow"
    )
    args = parser.parse_args()
    if args.plot is not None:
        plot(args.plot[1:], args.plot[0])
        return
    if not args.data.is_dir():
        sys.exit(f"skipped: {args.data} is missing; it has the recorded availability")
    zones = list(zone_records(args.data, args.only))
    for kind in args.homes:
        print(f"\n{kind}\n{HEADER}", flush=True)
        pooled: list[PlanOutcome] = []
        for zone in zones:
            outcomes = check_zone(zone, kind, args.hours, args.runs)
            pooled += outcomes
            if args.out is not None:
                with args.out.open("a") as file:
                    file.writelines(
                        json.dumps({"home": kind, **asdict(outcome)}) + "\n" for outcome in outcomes
                    )
            print(summary(zone.name, outcomes), flush=True)
        print(*groups(pooled), sep="\n", flush=True)


if __name__ == "__main__":
    main()
