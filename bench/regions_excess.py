"""Where `regions` loses dollars against the optimum: `python -m bench.regions_excess FOLDER`, a
folder of records.

With perfect knowledge, the least remaining cost of a job is known at every step. A step loses its
own cost minus the fall of the remaining cost: these losses add up to the excess, so each belongs to
what the job did in its step. What waiting or staying lost is known only afterwards: no policy could
avoid all of these losses.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd
from pathlib import Path

import numpy as np

from bench.regions import ALL_ZONES, published_windows, random_windows
from bidbrain.arrays import Floats
from bidbrain.lab.regions.policies import DecidedRegions
from bidbrain.lab.regions.replay import Field, Window
from bidbrain.strategies.regions import Running
from pricing_data.units import HOUR


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the job: what it did, in dollars, and the state that it began in for the optimum.

    That is what ran (idle, spot, on demand), where, and the parts of steps that were lost.
    """

    did: str
    usd: float
    kind: int
    zone: int
    lost: int


def main(words: Sequence[str]) -> None:
    """Prints the losses of the windows of the study and of random ones, by what the job did."""
    if len(words) != 1:
        sys.exit("usage: python -m bench.regions_excess FOLDER")
    folder = Path(words[0])
    study = list(published_windows(folder))
    for trace in ALL_ZONES:
        show(f"{trace}: the study", [entry.window for entry in study if entry.trace == trace])
        show(f"{trace}: 1 TB", list(random_windows(folder, trace, 6, 9, gb=1000.0)))


def show(name: str, windows: Sequence[Window]) -> None:
    """The losses of some windows, as shares of what the optimum costs."""
    losses, count, least = defaultdict[str, float](float), Counter[str](), 0.0
    for window in windows:
        steps = play_steps(window)
        to_go = costs_to_go(window, steps)
        least += to_go[0]
        for step, before, after in zip(steps, to_go, [*to_go[1:], 0.0], strict=True):
            losses[step.did] += step.usd + after - before
            count[step.did] += 1
    print(
        f"{name}: {len(windows)} windows, excess {sum(losses.values()) / least:.4f}, of which",
        flush=True,
    )
    for did, usd in sorted(losses.items(), key=lambda loss: -loss[1]):
        print(f"    {did:34}{usd / least:8.4f}{count[did] or '':>8}", flush=True)


def parts_of(window: Window) -> int:
    """The parts of a step in which lost time is counted."""
    return window.record.gap // gcd(window.record.gap, window.job.delay)


def play_steps(window: Window) -> list[Step]:
    """Plays the window under `regions`, and records each step."""
    field, policy, steps = Field(window), DecidedRegions(), list[Step]()
    part = window.record.gap // parts_of(window)
    while field.work_left > 0 and field.now < field.steps:
        ran, home = field.machine, field.home
        done = window.job.work - field.work_left
        lost = (field.now * field.gap - done + field.delay_left) // part
        kind = 0 if ran is None else 1 if ran.spot else 2
        zone = len(field.zones) if home is None else home
        field.begin_step()
        held = field.machine
        policy.step(field)
        did = _named(field, held, home)
        field.end_step()
        bill = field.this_step if field.work_left > 0 or not window.rules.published else None
        steps.append(Step(did, 0.0 if bill is None else bill.total, kind, zone, lost))
    return steps


def _named(field: Field, held: Running | None, home: int | None) -> str:
    now = field.machine
    if now is None:
        return "wait"
    what = "spot" if now.spot else "on demand"
    if now == held:
        return f"stay on {what}"
    if home is None:
        return f"first start on {what}"
    where = (
        "in the region" if field.regions[home] == field.regions[now.zone] else "in another region"
    )
    return f"{'start' if held is None else 'move'} on {what} {where}"


def costs_to_go(window: Window, steps: Sequence[Step]) -> list[float]:
    """Least remaining cost from the state in which each step began: backward over time, as
    `optimum` is forward.
    """
    record, job, parts = window.record, window.job, parts_of(window)
    delay, need = job.delay * parts // record.gap, ceil(job.work * parts / record.gap - 1e-9)
    zones, most = len(record.zones), record.steps * parts - need + 1
    moves = np.vstack([window.moving, np.zeros(zones)])
    on_demand = np.repeat(record.on_demand[:, None], record.steps, axis=1)
    prices = np.stack([record.spot, on_demand]) * (job.machines * record.gap / HOUR)
    prices[0][record.granted < job.at_least] = np.inf
    usd: Floats = np.full((3, zones + 1, most), np.inf)
    costs = list[float]()
    for now in reversed(range(record.steps)):
        ends = (now + 1) * parts - np.arange(most) >= need
        billed = prices[:, :, now, None]
        last = np.where(np.isinf(billed), np.inf, 0.0 if window.rules.published else billed)
        held = np.where(ends, last, billed + usd[1:, :zones])
        begun, idle = np.full_like(held, np.inf), np.full_like(usd[0], np.inf)
        begun[:, :, : most - delay] = held[:, :, delay:]
        idle[:, : most - parts] = usd[0, :, parts:]
        free = np.append(ends[delay:], np.zeros(delay, dtype=np.bool_)) & window.rules.published
        into = begun.min(axis=0)
        starts = np.stack(
            [(into + np.where(free, 0.0, move[:, None])).min(axis=0) for move in moves]
        )
        usd = np.stack([np.minimum(idle, starts)] * 3)
        usd[1:, :zones] = np.minimum(usd[1:, :zones], held)
        if now < len(steps):
            costs.append(float(usd[steps[now].kind, steps[now].zone, steps[now].lost]))
    return costs[::-1]


if __name__ == "__main__":
    main(sys.argv[1:])
