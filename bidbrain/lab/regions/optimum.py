"""The least that a job could have paid with perfect knowledge of its window, by dynamic
programming. Exact.

The state is what runs where, and the time lost so far: a step without a machine loses a step, a
start loses the delay. With t steps passed and s lost, t - s is done, so holding a machine leaves s
as it is, and the states of one moment are few: no more can be lost than the job has slack. Charging
a start's whole delay at once is exact, because no cheapest schedule starts a machine for less than
its delay. Lost time is counted in parts of a step that divide the delay.
"""

from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Floats
from bidbrain.lab.regions.replay import Field, Window
from bidbrain.strategies.regions import Running
from pricing_data.units import HOUR, SECOND

_MAX_PARTS = 20_000
Steps = tuple[Running | None, ...]


def cheapest(window: Window) -> Steps:
    """The cheapest schedule under the window's rules: what runs at each step."""
    gap = window.record.gap
    job = window.job
    regions = window.record.regions
    across = np.array([[a != b for b in regions] for a in regions])
    delay = job.delay + across * window.rules.moving_time
    common = gcd(gap, *np.unique(delay).tolist())
    parts = gap // common
    slack = job.steps(gap) * gap - job.work
    coarsest = _MAX_PARTS * gap // max(slack, 1)
    finest = min(parts, coarsest)
    parts = max(1, finest)
    return _Search(window, parts, delay, free_last=window.rules.published).run()


def published_plan(window: Window) -> Steps:
    """The schedule that the published simulator calls optimal: planned in whole steps, with the
    time of moving.

    It is then carried out under the window's rules, where a start may take less.
    """
    job = window.job
    regions = window.record.regions
    # The time of a move beyond that within a region, at the object-store speeds that the study
    # measured.
    seconds = np.zeros((len(regions), len(regions)))
    for i, source in enumerate(regions):
        for j, target in enumerate(regions):
            if source != target:
                source_area = source.split("-", maxsplit=1)[0]
                target_area = target.split("-", maxsplit=1)[0]
                is_near = source_area == target_area
                gbit = 8.2 if is_near else 3.59
                gigabits = job.checkpoint_gb * 8.192
                slower = 1 / gbit - 1 / 9.72
                seconds[i, j] = gigabits * slower

    delays = job.delay + seconds * SECOND
    return _Search(window, 1, delays, free_last=False).run()


class _Search:
    """Costs so far by what runs (idle, spot, on demand), zone (the last: nowhere) and parts lost,
    and how they arose.

    There are `_parts` in a step, `_need` for the work, and `_slack` to lose; `_delay[i, j]` of them
    and `_usd[i, j]` dollars are for a start in zone j with the checkpoint in zone i (the last row:
    nowhere). `_came` holds -1 where the same machine ran on, else the number of what ran before: 3
    x zone + kind.
    """

    def __init__(self, window: Window, parts: int, delay: Floats, *, free_last: bool) -> None:
        record = window.record
        job = window.job
        self._steps = record.steps
        self._zones = len(record.zones)
        self._parts = parts
        self._free_last = free_last

        parts_of_work = job.work * parts / record.gap
        self._need = ceil(parts_of_work - 1e-9)
        self._slack = record.steps * parts - self._need
        own_delay = np.full(len(delay), job.delay)
        with_nowhere = np.vstack([delay, own_delay])
        delay_parts = with_nowhere * parts / record.gap
        self._delay = np.ceil(delay_parts - 1e-9).astype(np.int64)
        nothing = np.zeros(len(delay))
        self._usd = np.vstack([window.moving, nothing])
        self._up = record.granted >= job.at_least
        prices_of_zones = record.on_demand[:, None]
        on_demand = np.repeat(prices_of_zones, self._steps, axis=1)
        both = np.stack([record.spot, on_demand])
        machine_time = job.machines * record.gap
        self._price = both * (machine_time / HOUR)
        most_lost = max(self._slack, 0)
        self._costs = np.full((3, self._zones + 1, most_lost + 1), np.inf)
        self._costs[0, -1, 0] = 0.0
        self._came = np.full((self._steps, *self._costs.shape), -1, dtype=np.int16)

    def run(self) -> Steps:
        """The cheapest schedule; empty if none meets the deadline."""
        best = np.inf
        cheapest_end: tuple[int, int, int, int] | None = None
        if self._slack < 0:
            return ()

        for step in range(self._steps):
            before = self._costs
            self._costs = self._after(step, before)
            done = (step + 1) * self._parts - self._need
            if done < 0:
                continue

            every_end = self._ends(step, before, done + 1)
            ends = every_end[1:, :-1]
            if ends.size and (cost := float(ends.min())) < best:
                kind, zone, lost = map(int, np.unravel_index(ends.argmin(), ends.shape))
                best = cost
                cheapest_end = (step, kind + 1, zone, lost)

            self._costs[:, :, : done + 1] = np.inf

        if cheapest_end is None:
            return ()

        # The schedule that ends there, from its last step back to its first.
        last, kind, zone, lost = cheapest_end
        held = list[Running | None]()
        for at in range(last, -1, -1):
            held.append(Running(zone, spot=kind == 1) if kind else None)
            came = int(self._came[at, kind, zone, lost])
            if kind == 0:
                lost -= self._parts
            elif came >= 0:
                lost -= int(self._delay[came // 3, zone])
            if came >= 0:
                zone, kind = divmod(came, 3)

        return tuple(reversed(held))

    def _after(self, step: int, before: Floats) -> Floats:
        zones = self._zones
        left, code = self._left(before)
        costs = np.full_like(before, np.inf)
        kept = max(before.shape[2] - self._parts, 0)
        costs[0, :, self._parts :] = left[:, :kept]
        self._came[step, 0, :, self._parts :] = code[:, :kept]
        entered, source = self._entered(left, code, self._usd)

        for kind in (1, 2):
            stays = before[kind, :zones] <= entered
            best = np.where(stays, before[kind, :zones], entered)
            prices_now = self._price[kind - 1, :, step]
            costs[kind, :zones] = best + prices_now[:, None]
            self._came[step, kind, :zones] = np.where(stays, -1, source)

        costs[1, :zones][~self._up[:, step]] = np.inf
        return costs

    def _left(self, before: Floats) -> tuple[Floats, NDArray[np.int16]]:
        """The cheapest way to have the checkpoint in a zone and nothing running, and what ran."""
        kind = before.argmin(axis=0)
        left = np.take_along_axis(before, kind[None], axis=0)[0]
        zones = np.arange(self._zones + 1)
        coded = zones[:, None] * 3
        return left, (coded + kind).astype(np.int16)

    def _entered(
        self, left: Floats, code: NDArray[np.int16], usd: Floats
    ) -> tuple[Floats, NDArray[np.int16]]:
        """The cheapest way into each zone by parts lost, and what ran before."""
        entered = np.full((self._zones, left.shape[1]), np.inf)
        source = np.full(entered.shape, -1, dtype=np.int16)
        for home in range(self._zones + 1):
            for zone in range(self._zones):
                lost = int(self._delay[home, zone])
                kept = max(entered.shape[1] - lost, 0)
                left_there = left[home, :kept]
                usd_of_move = usd[home, zone]
                cost = left_there + usd_of_move
                better = cost < entered[zone, lost:]
                entered[zone, lost:][better] = cost[better]
                codes = code[home, :kept]
                source[zone, lost:][better] = codes[better]

        return entered, source

    def _ends(self, step: int, before: Floats, count: int) -> Floats:
        """Costs of jobs that can end with this step, which have lost at most `count - 1` parts;
        others go on.
        """
        costs = self._costs[:, :, :count]
        if not self._free_last:
            return costs

        before = before[:, :, :count]
        left, code = self._left(before)
        free = np.zeros_like(self._usd)
        entered, source = self._entered(left, code, free)
        ends = np.full_like(before, np.inf)

        for kind in (1, 2):
            stays = before[kind, :-1] <= entered
            ends[kind, :-1] = np.where(stays, before[kind, :-1], entered)
            self._came[step, kind, :-1, :count] = np.where(stays, -1, source)

        return np.where(np.isfinite(costs), ends, np.inf)


class BestSchedule:
    """Carries out a schedule."""

    bills_last_step = False

    def __init__(self, plan: Steps) -> None:
        self._plan = plan

    def step(self, field: Field) -> None:
        wanted = None
        if field.now < len(self._plan):
            wanted = self._plan[field.now]
        if wanted is None:
            field.stop()
        elif wanted.spot:
            field.start_spot(wanted.zone)
        else:
            field.start_on_demand(wanted.zone)
