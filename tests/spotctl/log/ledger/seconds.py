"""The cost of a run, counted second by second from the raw rows of its log and the prices. Imports
nothing of spotctl.

A second belongs to where it began: to that hour, that price, that day and that use. Keys of the
sums are (machine, day, kind, use); `billed` are the amounts, `listed` what the same work would have
cost on demand.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Raw = Sequence[tuple[int, str, str]]
"""Rows of the log: moment, kind, and body as JSON."""
Steps = Mapping[str, Sequence[tuple[int, int]]]
"""By market: times and the prices from then on."""

SECOND, MINUTE, HOUR, DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6
USES = ("starting", "loading", "working", "redone", "idle", "unused")


@dataclass
class Machine:
    """One machine, from the log."""

    id: str
    order: dict[str, Any]
    start: int
    end: int | None = None
    evicted: bool = False
    ran: int | None = None
    turns: list[int] = field(default_factory=list)


@dataclass
class Log:
    """The log of the log."""

    machines: dict[str, Machine] = field(default_factory=dict)
    redone: list[tuple[int, int]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    corrected: list[dict[str, Any]] = field(default_factory=list)
    stopped: int | None = None
    last: int = 0
    training: bool = False
    idle: bool = False


@dataclass
class Sums:
    """What was counted."""

    billed: Counter[tuple[str, int, str, str]] = field(default_factory=Counter)
    listed: Counter[tuple[str, int, str, str]] = field(default_factory=Counter)


def counted(raw: Raw, rule: str, prices: Steps, now: int = 0) -> Sums:
    """The sums of a run; machines that run are counted up to `now`, or to the last row."""
    log, sums = read_rows(raw), Sums()
    replacing = replacements(log)
    for machine in log.machines.values():
        count_machine(machine, log, rule, prices, max(now, log.last), machine.id in replacing, sums)
    for sent in log.sent:
        key = (sent["id"], sent["at"] // DAY, "egress", "working")
        amount = sent["bytes"] * sent["price"] * 3600 // 2**30
        sums.billed[key] += amount
        sums.listed[key] += amount
    for wrong in log.corrected:
        sums.billed[wrong["id"], wrong["at"] // DAY, "correction", "working"] += wrong["amount"]
    return sums


def read_rows(raw: Raw) -> Log:
    """Goes through the rows once."""
    log, orders = Log(), dict[int, dict[str, Any]]()
    for at, kind, text in raw:
        body = json.loads(text)
        log.last = max(log.last, at)
        if kind == "RentIntended":
            orders[body["intent"]] = body
        elif kind == "Rented":
            for came in body["machines"]:
                log.machines[came["id"]] = Machine(
                    came["id"], orders[body["intent"]], came["started"]
                )
        elif kind in READERS:
            READERS[kind](log, at, body)
    return log


def began(log: Log, _: int, body: dict[str, Any]) -> None:
    kind = body["spec"].get("kind")
    log.training, log.idle = kind == "agileml", kind in ("agileml", "command")


def attempted(log: Log, _: int, __: dict[str, Any]) -> None:
    log.idle = False


def ran(log: Log, at: int, body: dict[str, Any]) -> None:
    log.machines[body["id"]].ran = at


def ended(log: Log, _: int, body: dict[str, Any]) -> None:
    machine = log.machines[body["id"]]
    machine.end, machine.evicted = max(body["at"], machine.start), body["reason"] == "evicted"


def progressed(log: Log, _: int, body: dict[str, Any]) -> None:
    for what, odd in (("ready", False), ("left", True)):
        for one in body[what]:
            turns = log.machines[one["id"]].turns
            if len(turns) % 2 == odd:
                turns.append(max([one["at"], *turns]))
    log.redone += [(one["begin"], one["end"]) for one in body["redone"]]


def stopped(log: Log, at: int, _: dict[str, Any]) -> None:
    log.stopped = at if log.stopped is None else log.stopped


READERS: Mapping[str, Callable[[Log, int, dict[str, Any]], None]] = {
    "RunBegan": began,
    "AttemptBegan": attempted,
    "MachineRan": ran,
    "MachineEnded": ended,
    "Progressed": progressed,
    "Sent": lambda log, _, body: log.sent.append(body),
    "Corrected": lambda log, _, body: log.corrected.append(body),
    "StopRequested": stopped,
}


def replacements(log: Log) -> set[str]:
    """Machines that replaced evicted ones."""
    free, came = 0, set[str]()
    arrivals = [(m.start, 1, m.id) for m in log.machines.values() if not m.order["reliable"]]
    for _, what, name in sorted(
        [*arrivals, *((m.end or 0, 0, m.id) for m in log.machines.values() if m.evicted)]
    ):
        if what == 0:
            free += 1
        elif free:
            free -= 1
            came.add(name)
    return came


def count_machine(
    m: Machine, log: Log, rule: str, prices: Steps, now: int, replaces: bool, sums: Sums
) -> None:
    end = now if m.end is None else m.end
    begins = np.arange(m.start, end, SECOND)
    if not begins.size:
        return
    uses, days = labels(m, log, begins), begins // DAY
    order = m.order
    rate = rates(order, rule, prices, m.start, begins)
    compute, extra, free = due(rule, begins.size, end - m.start, m.evicted)
    for day in np.unique(days):
        for number, use in enumerate(USES):
            here = (days == day) & (uses == number)
            if not here.any():
                continue
            counts = use != "redone" and not (replaces and use in ("starting", "loading"))
            paid = here & compute
            sums.billed[m.id, int(day), "compute", use] += int(rate[paid].sum())
            sums.listed[m.id, int(day), "compute", use] += (
                int(paid.sum()) * order["on_demand"] * counts
            )
            sums.billed[m.id, int(day), "refund", use] -= int(rate[paid & free].sum())
            for kind in ("disk", "address"):
                beside = int(here.sum()) * order[kind]
                sums.billed[m.id, int(day), kind, use] += beside
                sums.listed[m.id, int(day), kind, use] += beside * counts
    sums.billed[m.id, end // DAY, "compute", "unused"] += extra * int(rate[-1])
    sums.listed[m.id, end // DAY, "compute", "unused"] += extra * order["on_demand"]


def labels(m: Machine, log: Log, begins: Ints) -> Ints:
    """The use of each second."""
    ran = np.inf if m.ran is None else m.ran
    over = max(ran, np.inf if log.stopped is None else log.stopped)
    from_ran = np.array([] if log.idle else [ran], dtype=np.float64)
    turns = np.array(m.turns, dtype=np.float64) if m.turns else from_ran
    turned = np.searchsorted(turns, begins, side="right")
    again = np.zeros(begins.size, dtype=bool)
    for begin, end in log.redone:
        again |= (begins >= begin) & (begins < end)
    conditions = [begins < ran, begins >= over, turned == 0, turned % 2 == 0, again]
    return np.select(conditions, [0, 4, 1, 4, 3], 2)


def rates(order: Mapping[str, Any], rule: str, prices: Steps, start: int, begins: Ints) -> Ints:
    """What each second costs in an hour."""
    if order["bid"] is None:
        return np.full(begins.size, order["on_demand"])
    fixed = rule in ("hourly-refund", "per-second-first-hour-free")
    asked = start + (begins - start) // HOUR * HOUR if fixed else begins
    rate = np.zeros(begins.size, dtype=np.int64)
    for since, price in prices[order["market"]]:
        rate[asked >= since] = price
    return rate


def due(
    rule: str, seconds: int, lived: int, evicted: bool
) -> tuple[NDArray[np.bool_], int, NDArray[np.bool_]]:
    """The billed seconds, the number of paid but unused ones, and the refunded ones."""
    number, none = np.arange(seconds), np.zeros(seconds, dtype=bool)
    whole = ~none
    match rule:
        case "hourly-refund":
            broken = lived % HOUR != 0
            last = (number >= lived // HOUR * 3600) & broken
            return whole, 0 if evicted else -seconds % 3600, last if evicted else none
        case "azure":
            return number < lived // MINUTE * 60, 0, none
        case "per-second":
            return whole, max(60 - seconds, 0), none
        case "vast" | "runpod" | "slurm":
            return whole, 0, none
        case "gcp":
            free = evicted and lived < MINUTE
            return whole, 0 if free else max(60 - seconds, 0), whole if free else none
        case "per-second-first-hour-free":
            free = evicted and lived < HOUR
            return whole, 0 if free else max(60 - seconds, 0), whole if free else none
    raise AssertionError(rule)
