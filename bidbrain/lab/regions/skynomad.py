"""`skynomad`: our reading of the best published policy for one job in many zones (NSDI 2027).

Each zone has a life that tries and probes begin and refusals end. Its remaining time given its age
is a Nelson-Aalen estimate, shortened after a burst of losses. An hour of spot in a zone is worth

    value of progress x (life - start delay)+ / life - price - cost of the move / life

and the best action that beats the present one by a margin is tried, then the next. Zones without a
life are probed. Each zone stays under observation while no machine runs there.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf

from bidbrain.lab.regions.replay import Field
from pricing_data.units import HOUR

PROBE_EVERY = 6
_MARGIN_USD, _MARGIN_PER_GB, _MARGIN_SHARE = 0.5, 0.0002, 0.05
_NO_HAZARD = 1e-8
_RISK_KEPT = 8.0


@dataclass(slots=True)
class ZoneLife:
    """The lives of a zone as tries and probes showed them, in hours.

    Tries and probes begin and end lives; the present life counts as a life that has not ended yet.
    """

    ended: list[tuple[float, float, bool]] = field(default_factory=list)
    since: float | None = None
    failures: int = 0
    _age_seen: float | None = None
    _events: deque[tuple[float, int]] = field(default_factory=deque)
    burst: float = 1.0
    probes: int = 0
    _shown: bool | None = None

    def show(self, now: float, *, up: bool) -> None:
        """A try or a probe showed whether spot is available, while no machine of the job ran
        here."""
        if up is self._shown:
            return
        if up:
            self.begin(now)
        elif self._shown:
            self.end(now, lost=True)
        self._shown = up

    def end(self, now: float, *, lost: bool) -> None:
        """Closes the present life: it was lost, or it is not known how long it would have been."""
        if self.since is not None:
            self.ended.append((self.since, now, lost))
        self.since = self._age_seen = None
        self.failures += lost

    def begin(self, now: float) -> None:
        """A machine started, or a probe succeeded."""
        self.since = now
        self._age_seen = 0.0

    def hazard(self, now: float) -> tuple[list[tuple[float, float]], float]:
        """Nelson-Aalen steps by age, and the hazard beyond the last."""
        lives = [end - begin for begin, end, _ in self.ended]
        if self.since is not None and now > self.since:
            lives.append(now - self.since)

        losses = [end - begin for begin, end, lost in self.ended if lost]
        steps = [
            (
                age,
                sum(abs(loss - age) <= 1e-9 for loss in losses)
                / sum(life + 1e-9 >= age for life in lives),
            )
            for age in sorted(set(losses))
        ]

        return steps, steps[-1][1] if steps else _NO_HAZARD

    def remaining(self, now: float, gap: float) -> float:
        """Expected hours that a machine here still has."""
        steps, tail = self.hazard(now)
        age = 0.0
        if self.since is not None:
            age = now - self.since
        survives = 1.0
        hours = 0.0
        age = max(age, self.probes / 60)
        for at, size in steps:
            if at > age + 1e-12:
                hours += survives * (at - age)
                survives *= exp(-self.burst * size)
                age = at

        ends = 1.0 - exp(-self.burst * tail)
        ending = ends if ends > 1e-9 else self.burst * tail
        surviving = survives * gap / ending
        return hours + surviving

    def observe(self, now: float, gap: float) -> None:
        """Once a step: losses against the losses that the estimate expected."""
        steps, tail = self.hazard(now)
        risk = 0.0
        if self.since is not None:
            age = now - self.since
            seen = max(age - gap, 0.0) if self._age_seen is None else self._age_seen
            until_now = _cumulative(steps, tail, age)
            until_seen = _cumulative(steps, tail, seen)
            risk = max(until_now - until_seen, 0.0)
            self._age_seen = age

        if risk <= 0 and (self.since is not None or self.failures) and not steps:
            risk = tail * gap
        if risk <= 0 and self.failures:
            risk = tail * gap

        if risk > 0 or self.failures:
            self._events.append((risk, self.failures))
            total = sum(risk for risk, _ in self._events)
            while total - self._events[0][0] >= _RISK_KEPT:
                total -= self._events.popleft()[0]
            self.burst = 1.0 if total < 1.0 else max(1.0, _densest(self._events))

        self.failures = 0


def _cumulative(steps: Sequence[tuple[float, float]], tail: float, age: float) -> float:
    if age <= 0:
        return 0.0
    passed = [(at, size) for at, size in steps if at < age]
    last = 0.0
    if passed:
        last = passed[-1][0]
    whole = sum(size for _, size in passed)
    since_last = (age - last) * tail
    return whole + since_last


def _densest(events: Sequence[tuple[float, int]]) -> float:
    """The most losses per expected loss among the latest steps that together expected at most
    one."""
    risk = 0.0
    losses = 0
    best = 0.0
    any_ = False
    for expected, count in reversed(events):
        first = not risk and not losses and not any_
        risk = risk + expected
        losses = losses + count
        if risk > 1.0 + 1e-9:
            if first:
                return max(best, losses / risk)
            return best
        ratio = 0.0
        if losses:
            ratio = losses / max(risk, 1e-6)
        best = max(best, ratio)
        any_ = True

    return best


@dataclass(slots=True)
class SkyNomad:
    """One job's policy."""

    lives: list[ZoneLife] = field(default_factory=list)
    origin: int | None = None
    running: int | None = None
    stopped: bool = False
    next_probe: list[int] = field(default_factory=list)
    probed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    bills_last_step = False

    def step(self, field: Field) -> None:
        now = _hours(field)
        gap = field.gap / HOUR
        if not self.lives:
            self.lives = [ZoneLife() for _ in field.zones]
            self.next_probe = [0] * len(field.zones)

        held = field.machine
        if self.running is not None and (
            held is None or held.zone != self.running or not held.spot
        ):
            life_there = self.lives[self.running]
            life_there.end(now, lost=not self.stopped)
            self.running = None
            self.stopped = False

        for life in self.lives:
            life.observe(now, gap)
        if held is not None:
            self.origin = held.zone

        # An hour of work is worth more dollars as the job falls behind its even pace.
        job = field.job
        elapsed = field.now * field.gap
        pace_of_work = field.work_left * job.deadline
        usual_pace = (job.deadline - elapsed) * job.work
        pace = pace_of_work / usual_pace
        lowest_on_demand = float(field.on_demand.min())
        lowest_spot = float(field.spot.min())
        worth = max(lowest_on_demand * pace, lowest_spot)
        decided = self._act(field, worth)
        self._probe(field, decided)

    def _spot_value(self, field: Field, zone: int, usd: float) -> float:
        left = (field.job.deadline - field.now * field.gap) / HOUR
        expected = self.lives[zone].remaining(_hours(field), field.gap / HOUR)
        life = min(expected, left)
        held = field.machine
        runs = held is not None and held.spot and held.zone == zone
        works = life if runs else life - field.job.delay / HOUR
        if works <= 0:
            return -inf

        move = 0.0
        if self.origin is not None:
            move = field.move_usd(zone)
        worth = usd * works / life
        move_per_hour = move / max(life, 1e-6)
        return worth - float(field.spot[zone]) - move_per_hour

    def _options(self, field: Field, usd: float, present: float) -> list[tuple[float, int, bool]]:
        """Actions with their worth: value, zone (-1: wait), on spot or on demand."""
        held = field.machine
        margin = (
            _MARGIN_USD + _MARGIN_PER_GB * field.job.checkpoint_gb + _MARGIN_SHARE * usd
            if held
            else -inf
        )

        options = [(0.0, -1, False)]
        for zone in range(len(field.zones)):
            value = self._spot_value(field, zone, usd)
            if value >= 0 and (held is None or zone == held.zone or value > present + margin):
                options.append((value, zone, True))

        for zone in range(len(field.zones)):
            started = 0.0
            if self.origin is not None and self.origin != zone:
                starting_usd = field.job.delay / HOUR * usd
                moving_usd = field.move_usd(zone)
                started = starting_usd + moving_usd
            value = usd - float(field.on_demand[zone]) - started
            if value >= 0 and value > present + margin:
                options.append((value, zone, False))

        return options

    def _act(self, field: Field, usd: float) -> int | None:
        """Takes the best action that works; returns the zone that is not probed now, if any."""
        held = field.machine
        present = 0.0
        if held is not None and held.spot:
            present = self._spot_value(field, held.zone, usd)
        elif held is not None:
            present = usd - float(field.on_demand[held.zone])

        options = self._options(field, usd, present)
        for value, zone, spot in sorted(options, key=lambda option: -option[0]):
            if value <= present:
                break
            if held is not None and (held.zone, held.spot) == (zone, spot):
                continue

            if zone < 0:
                # Waiting is better than what runs: it runs on, and its zone may be probed.
                self.origin = None
                return None

            if self._start(field, zone, spot=spot):
                return zone

        return held.zone if held is not None else None

    def _start(self, field: Field, zone: int, *, spot: bool) -> bool:
        if not spot:
            self.stopped = self.running is not None
            field.start_on_demand(zone)
            self.origin = zone
            return True

        if zone in self.probed:
            self.lives[zone].end(_hours(field), lost=False)
            self.probed.discard(zone)

        if not field.start_spot(zone):
            self.refused.add(zone)
            self.lives[zone].failures += 1
            self.lives[zone].show(_hours(field), up=False)
            return False

        # A machine that is left for another is taken to live on: only a loss or a return ends its
        # life.
        self.lives[zone].begin(_hours(field))
        if self.running is not None and self.running != zone:
            self.lives[self.running].show(_hours(field), up=False)

        self.running = self.origin = zone
        self.stopped = False
        return True

    def _probe(self, field: Field, at: int | None) -> None:
        for zone in range(len(field.zones)):
            if (
                zone == at
                or zone in self.probed
                or zone in self.refused
                or field.now < self.next_probe[zone]
            ):
                continue

            self.next_probe[zone] = field.now + PROBE_EVERY
            if field.probe(zone):
                self.lives[zone].begin(_hours(field))
                self.lives[zone].show(_hours(field), up=True)
                self.lives[zone].probes += 1
                self.probed.add(zone)
            else:
                self.lives[zone].failures += 1
                self.lives[zone].show(_hours(field), up=False)

        self.refused.clear()


def _hours(field: Field) -> float:
    return field.now * field.gap / HOUR
