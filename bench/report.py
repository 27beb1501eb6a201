"""The processor time of cost reports, on a log of 100,000 events and on 3,000 runs that have
ended."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from bench.harness import Row, shown, table, times_faster
from bench.startup import processor_seconds
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, MINUTE, parse_time
from spotctl.home.paths import Paths
from spotctl.log import event_json, events as ev
from spotctl.log.schema import checksum
from spotctl.log.store import EventLog

EVENTS, LIMIT, FIRST_LIMIT, RUNS = 100_000, 0.3, 0.6, 3
ENDED, ENDED_LIMIT, STATUS_LIMIT, FOCUS_MEGABYTES = 3000, 0.8, 0.5, 200
MARKET = Market.parse("aws/us-east-1/us-east-1a/c6i.2xlarge")
FIRST = parse_time("2017-01-01T02:00:00Z")
MACHINES, BATCHES, CLOCKS, RENEWALS = 4, 3, 250, 70
"""Counts of a night; the shares of the kinds of events are those of a real run on the local
market."""


def night(number: int) -> list[tuple[int, ev.Event]]:
    """A training of four hours. Its machines are evicted twice, and their work is done again."""
    start = FIRST + number * DAY
    end, life = start + 4 * HOUR, 4 * HOUR // BATCHES
    events: list[tuple[int, ev.Event]] = []
    for batch in range(BATCHES):
        at = start + batch * life
        names = tuple(f"i-{number}-{batch}-{i}" for i in range(MACHINES))
        order = ev.RentIntended(
            batch + 1, MARKET, MACHINES, 340_000_000, 340_000_000, 4.0, False, end
        )
        events += [
            (at, order),
            (at, ev.Rented(batch + 1, tuple(ev.Granted(name, at) for name in names))),
        ]
        events += [(at + MINUTE, ev.MachineRan(name)) for name in names]
        ready = tuple(ev.Moment(name, at + 2 * MINUTE) for name in names)
        redone = (ev.Stretch(at, at + 2 * MINUTE),) if batch else ()
        events.append(
            (
                at + 2 * MINUTE,
                ev.Progressed(batch * CLOCKS // BATCHES, 1.0, 2, ready=ready, redone=redone),
            )
        )
        why = "evicted" if batch < BATCHES - 1 else "returned"
        events += [(at + life, ev.MachineEnded(name, at + life, why)) for name in names]
    events += [
        (start + clock * (end - start) // CLOCKS, ev.Progressed(clock, 1.0, 2))
        for clock in range(1, CLOCKS)
    ]
    for i in range(RENEWALS):
        at = start + (i + 1) * (end - start) // (RENEWALS + 1)
        held = tuple(f"i-{number}-{(at - start) // life}-{machine}" for machine in range(MACHINES))
        events += [(at, ev.RenewIntended(100 + i, held, at + HOUR)), (at, ev.Renewed(100 + i))]
    ordered = sorted(events, key=lambda timed: timed[0])
    times = tuple(range(start, end + 1, 20 * MINUTE))
    prices = tuple(100_000_000 + 1_000_000 * (i % 9) for i in range(len(times)))
    spec = {"name": "nightly", "kind": "agileml", "budget": "5 USD"}
    return [
        (start, ev.RunBegan("nightly", "aws", spec, "/rendezvous", start)),
        (start, ev.Planned(1.0, 0.8, 1.3, 4.0, 3.0, assumed=False)),
        *ordered,
        (end, ev.Priced(MARKET, "per-second-first-hour-free", times, prices)),
        (end, ev.RunEnded("done", "", end, {"clocks": CLOCKS, "samples": CLOCKS * 1000})),
    ]


def write(home: Path, nights: int) -> int:
    """Writes the log in one transaction: row by row, each would be synced to disk. Runs end as the
    product ends them, with their costs."""
    EventLog(home / "log.sqlite").close()
    every = {f"nightly-{number}": night(number) for number in range(nights)}
    rows = (
        (run, at, type(event).__name__, event_json.to_json(event))
        for run, events in every.items()
        for at, event in events[:-1]
    )
    with closing(sqlite3.connect(home / "log.sqlite")) as log, log:
        checked = ((*row, checksum(*row)) for row in rows)
        statement = "INSERT INTO events (run, at_us, kind, body, checksum) VALUES (?, ?, ?, ?, ?)"
        written = log.executemany(statement, checked).rowcount
    with EventLog(home / "log.sqlite") as opened:
        for run, events in every.items():
            opened.append(run, *events[-1])
    return written + nights


def _command(home: str, words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("spotctl")), "--home", home, *words.split()]


_PEAK = (
    "import os, subprocess, sys; started = subprocess.Popen(sys.argv[1:], "
    "stdout=subprocess.DEVNULL); print(os.wait4(started.pid, 0)[2].ru_maxrss)"
)


def peak_megabytes(command: list[str]) -> float:
    """The memory that a command has taken at most. A small process starts the command, because a
    process counts as its own what the one that starts it has taken."""
    words = [sys.executable, "-c", _PEAK, *command]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) / 1024


def _ended_runs() -> list[Row]:
    """A home of several years, after its first report."""
    with tempfile.TemporaryDirectory() as folder:
        count = write(Path(folder), ENDED)
        report, status, focus = (
            _command(folder, words)
            for words in ("report cost --json", "status", "report cost --format focus")
        )
        processor_seconds(report)
        later, seen, exported = (
            min(processor_seconds(command) for _ in range(RUNS))
            for command in (report, status, focus)
        )
        megabytes = peak_megabytes(focus)
    what = f"{ENDED:,} ended runs, {count:,} events"
    return [
        Row(
            f"`report cost --json`, {what}",
            shown(later),
            f"at most {shown(ENDED_LIMIT)}",
            times_faster(later, ENDED_LIMIT),
        ),
        Row(
            f"`status`, {what}",
            shown(seen),
            f"at most {shown(STATUS_LIMIT)}",
            times_faster(seen, STATUS_LIMIT),
        ),
        Row(f"`report cost --format focus`, {what}", shown(exported), "none"),
        Row(
            "memory of that export",
            f"{megabytes:.0f} MB",
            f"at most {FOCUS_MEGABYTES} MB",
            times_faster(megabytes, FOCUS_MEGABYTES),
        ),
    ]


def run() -> str:
    """The section of build/benchmarks.md."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        count = write(home, EVENTS // len(night(0)) + 1)
        command = _command(folder, "report cost --json")
        times: dict[str, list[float]] = {
            "DELETE FROM final_costs": [],
            "DELETE FROM checks": [],
            "": [],
        }
        first_ever = processor_seconds(command)
        for _ in range(RUNS):
            for statement, seconds in times.items():
                with closing(sqlite3.connect(Paths(home).log)) as log, log:
                    log.execute(statement)
                seconds.append(processor_seconds(command))
    none_kept, first, later = map(min, times.values())
    what = f"`report cost --json` on {count:,} events"
    rows = [
        Row(
            f"{what}, the first ever",
            shown(first_ever),
            f"at most {shown(FIRST_LIMIT)}",
            times_faster(first_ever, FIRST_LIMIT),
        ),
        Row(
            f"{what}, the first of a day",
            shown(first),
            f"at most {shown(FIRST_LIMIT)}",
            times_faster(first, FIRST_LIMIT),
        ),
        Row(f"{what}, later", shown(later), f"at most {shown(LIMIT)}", times_faster(later, LIMIT)),
        Row(
            f"{what}, when no costs are kept: after a new format of them",
            shown(none_kept),
            f"at most {shown(FIRST_LIMIT)}",
            times_faster(none_kept, FIRST_LIMIT),
        ),
        *_ended_runs(),
    ]
    remark = (
        f"User and system time of the whole command, the least of {RUNS}, on a year of nights with "
        "their clocks and"
        " leases. The log keeps what a run has cost from its end on; the first report of a day "
        "also checks every row."
    )
    return table("Cost reports", remark, rows)
