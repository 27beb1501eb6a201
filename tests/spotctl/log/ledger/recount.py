"""Recounts the cost of runs without our code: `python -m tests.spotctl.log.ledger.recount HOME
[--prices FILE]`.

It reads the event log with `sqlite3` and `json`, and the prices from the log, or those of spot
machines from a Parquet file with the columns market, time and price
(`pricing_data/samples/prices.parquet` has those of the local market). It counts the bill second by
second, and what the same work would have cost on demand. Then it compares both with `spotctl report
cost --by run --json`: the bill to the nano-dollar; the on-demand cost may differ if a thousandth
more or less time at work, which is as exact as whole seconds are, begins another hour.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.spotctl.log.ledger import seconds

RULES = {
    "aws": "per-second-first-hour-free",
    "gcp": "gcp",
    "azure": "azure",
    "slurm": "slurm",
    "vast": "vast",
    "runpod": "runpod",
    "local": "hourly-refund",
}
MAX_MOMENTS = 128
"""Of the ends of clocks, a run keeps at most this number: beyond it, every second one is left
out."""

_WORKING = seconds.USES.index("working")


@dataclass(frozen=True)
class Recount:
    """A run's bill and on-demand cost in nano-dollars; the latter None if it is not recounted."""

    bill: int
    on_demand: int | None
    low: int = 0
    high: int = 0


def recounted(log: Path, prices: seconds.Steps | None = None) -> dict[str, Recount]:
    """The runs of a log that have ended."""
    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as file:
        runs = [
            run
            for (run,) in file.execute("SELECT run FROM events WHERE kind = 'RunEnded' ORDER BY id")
        ]
        rows = "SELECT at_us, kind, body FROM events WHERE run = ? ORDER BY id"
        return {run: _recount(file.execute(rows, (run,)).fetchall(), prices) for run in runs}


def _recount(raw: seconds.Raw, prices: seconds.Steps | None) -> Recount:
    bodies = [(at, kind, json.loads(body)) for at, kind, body in raw]
    priced = {body["market"]: body for _, kind, body in bodies if kind == "Priced"}
    logged = {
        market: list(zip(one["times"], one["prices"], strict=True))
        for market, one in priced.items()
    }
    (rule,) = {one["rule"] for one in priced.values()} or {RULES["local"]}
    sums = seconds.counted(raw, rule, prices or logged)
    bill = round(Decimal(sum(sums.billed.values())) / 3600)
    return Recount(bill, *_on_demand(seconds.read_rows(raw), bodies))


def _on_demand(
    log: seconds.Log, bodies: list[tuple[int, str, dict[str, Any]]]
) -> tuple[int | None, int, int]:
    """The work of a run on the on-demand machines of the plan, with begun hours."""
    if bodies[-1][2]["outcome"] == "failed":
        return 0, 0, 0
    offer = next((body.get("instead") for _, kind, body in bodies if kind == "Planned"), None)
    needed = _clocks(log, bodies, offer) if log.training else _kept(log, bodies)
    if offer is None or needed is None:
        return None, 0, 0
    if not log.training and needed:
        if (
            not offer.get("work")
            and max((b["attempt"] for _, kind, b in bodies if kind == "AttemptBegan"), default=0)
            > 1
        ):
            # A checkpoint that the program does not load keeps no work.
            return None, 0, 0
        needed = min(needed, offer.get("work") or inf)
    span = needed / (offer["machines"] * offer["nu"])
    return (
        (_cost(offer, span), _cost(offer, 0.999 * span), _cost(offer, 1.001 * span))
        if needed
        else (0, 0, 0)
    )


def _clocks(
    log: seconds.Log, bodies: list[tuple[int, str, dict[str, Any]]], offer: dict[str, Any] | None
) -> float | None:
    """What the clocks of a training need: each the median of their time at work, or the time that
    the plan knew.
    """
    done = list[tuple[int, int]]()
    for at, kind, body in bodies:
        if kind == "Progressed" and body["clock"] > (done[-1][0] if done else 0):
            done = [*(done[::2] if len(done) >= MAX_MOMENTS else done), (body["clock"], at)]
    if not done:
        return None
    resumed = next(
        (body["resumed_clock"] for _, kind, body in bodies if kind == "Progressed"), None
    )
    worked = [(clock, _worked(log, at), _only_reliable(log, at)) for clock, at in done]
    parts = [worked[0][2], *(n - m for (_, _, m), (_, _, n) in pairwise(worked))]
    most = (
        0.1 if any(others > 0 and reliable <= 0.1 * others for others, reliable in parts) else 1.0
    )
    spans = [
        ((y - x) / (b - a), b - a, (n - m)[1] > most * (n - m)[0])
        for (a, x, m), (b, y, n) in pairwise(worked)
    ]
    each = sorted(
        span for span, count, lone in spans for _ in range(count) if span > 0 and not lone
    )
    first, opening, (by_others, by_reliable) = worked[0]
    lone = resumed is not None and bool(by_reliable > most * by_others)
    known = 3600 * seconds.SECOND if offer is not None and offer.get("spread") is not None else inf
    begun = float(first - (resumed or 0))
    middle = (
        each[(len(each) + 1) // 2 - 1]
        if each
        else opening / begun
        if opening and not lone
        else known
    )
    middle = min(middle, known)
    if middle == inf:
        return None
    begun = begun if resumed is not None else min(begun, opening / middle)
    alone = sum(number for _, number, lonely in spans if lonely) + begun * lone
    count = sum(number for _, number, _ in spans) + begun - alone
    return min(count * middle, _worked(log, log.last)) + alone * middle


def _kept(log: seconds.Log, bodies: list[tuple[int, str, dict[str, Any]]]) -> float | None:
    """The time at work of a command, in the share that checkpoints kept or its end did."""
    last = log.last if log.stopped is None else log.stopped
    spans = list[list[int]]()  # Of each attempt: its number, begin, end, and what it kept.
    for at, kind, body in bodies:
        if kind == "AttemptBegan":
            spans.append([body["attempt"], at, last, -1])
        elif kind == "AttemptStopped":
            spans[-1][2:] = [at, max(spans[-1][3], 0)]
        elif (
            kind == "Checkpointed"
            and body["rank"] == 0
            and spans
            and body["attempt"] == spans[-1][0]
        ):
            kept = min(at, spans[-1][2]) - spans[-1][1]
            spans[-1][3] = max(kept, spans[-1][3])
    if not spans:
        return None
    stopped = any(
        kind == "AttemptStopped" and body["attempt"] == spans[-1][0] for _, kind, body in bodies
    )
    done = [kept for *_, kept in spans[:-1]] + [spans[-1][3] if stopped else last - spans[-1][1]]
    tried = sum(end - begin for _, begin, end, _ in spans)
    return _worked(log, log.last) * min(sum(done) / tried, 1.0) if tried else 0.0


def _cost(offer: dict[str, Any], working: float) -> int:
    span, rule = round(working) + offer["startup"], RULES[offer["market"].partition("/")[0]]
    due, rest, _ = seconds.due(rule, -(-span // seconds.SECOND), span, evicted=False)
    return round(Decimal(offer["price"] * offer["machines"] * (int(due.sum()) + rest)) / 3600)


def _worked(log: seconds.Log, until: int) -> float:
    """Microseconds at work before a moment, over all machines, weighted with their speed."""
    total = 0.0
    for machine in log.machines.values():
        if machine.order["reliable"]:
            continue
        begins = np.arange(
            machine.start, log.last if machine.end is None else machine.end, seconds.SECOND
        )
        here = begins[seconds.labels(machine, log, begins) == _WORKING]
        total += machine.order["nu"] * float(np.clip(until - here, 0, seconds.SECOND).sum())
    return total


def _only_reliable(log: seconds.Log, until: int) -> NDArray[np.int64]:
    """The seconds before a moment in which another machine worked, and those in which only reliable
    ones did.
    """
    begins = np.arange(
        min(machine.start for machine in log.machines.values()), until, seconds.SECOND
    )
    by = dict.fromkeys((False, True), np.zeros(begins.size, dtype=bool))
    for machine in log.machines.values():
        here = (begins >= machine.start) & (begins < (inf if machine.end is None else machine.end))
        works = here & (seconds.labels(machine, log, begins) == _WORKING)
        by[machine.order["reliable"]] = by[machine.order["reliable"]] | works
    return np.array([by[False].sum(), (by[True] & ~by[False]).sum()])


def from_parquet(path: Path) -> seconds.Steps:
    table = pq.read_table(path).to_pydict()
    steps: dict[str, list[tuple[int, int]]] = {}
    for market, time, price in zip(table["market"], table["time"], table["price"], strict=True):
        steps.setdefault(market, []).append((time, price))
    return {market: sorted(found) for market, found in steps.items()}


def differences(found: dict[str, Recount], answer: dict[str, Any]) -> list[str]:
    """Where the product's report by run (as JSON) differs from the recount."""
    groups = {group["run"]: group for group in answer["groups"] if not group["running"]}
    lines = [f"{run}: only in one of them" for run in sorted(found.keys() ^ groups.keys())]
    for run in sorted(found.keys() & groups.keys()):
        mine, group = found[run], groups[run]
        if (paid := _nanos(group["total_usd"])) != mine.bill:
            lines.append(f"{run}: paid {paid} nano-dollars, recounted {mine.bill}")
        instead = 0 if group["on_demand_usd"] is None else _nanos(group["on_demand_usd"])
        if mine.on_demand is not None and not mine.low <= instead <= mine.high:
            lines.append(f"{run}: on demand {instead} nano-dollars, recounted {mine.on_demand}")
    return lines


def _nanos(dollars: float) -> int:
    return round(Decimal(repr(dollars)) * 10**9)


def main() -> int:
    """Prints each run's bill and on-demand cost as recounted, and every difference to the
    report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument(
        "--prices", type=Path, help="Parquet file with the spot prices; otherwise those in the log"
    )
    asked = parser.parse_args()
    found = recounted(
        asked.home / "log.sqlite", from_parquet(asked.prices) if asked.prices else None
    )
    command = [
        sys.executable,
        "-m",
        "spotctl",
        "--home",
        asked.home,
        "report",
        "cost",
        "--by",
        "run",
        "--json",
    ]
    answers = [
        json.loads(
            subprocess.run([*command, *words], check=True, capture_output=True, text=True).stdout
        )
        for words in ((), ("--local",))
    ]
    groups = {group["run"]: group for answer in answers for group in answer["groups"]}
    for run, one in found.items():
        instead = "not recounted" if one.on_demand is None else f"${one.on_demand / 10**9:.9f}"
        sys.stdout.write(f"{run}: paid ${one.bill / 10**9:.9f}, on demand {instead}\n")
    lines = differences(found, {"groups": list(groups.values())})
    sys.stdout.writelines(f"{line}\n" for line in lines)
    whole = sum(one.bill for one in found.values())
    known = sum(one.on_demand is not None for one in found.values())
    sys.stdout.write(
        f"{len(found)} runs, ${whole / 10**9:.9f} paid, {known} with an on-demand cost: "
        f"{len(lines)} differences\n"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
