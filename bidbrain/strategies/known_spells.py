"""`KnownSpells`: what a market's observed availability says about its spells of spot capacity, up
and down.

Spells end at the rates of a prior by age (`PUBLIC_PRIOR`), times a factor for each side. With a
Gamma prior on the factor, its posterior is Gamma(`STRENGTH` + endings seen, `STRENGTH` + endings
that the prior expects over the same time); endings and time count half for every `HALF_LIFE` since.
Between looks that are far apart nothing is known.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.eviction.hazard import UNRECORDED, Hazard
from bidbrain.strategies.base import Offer
from bidbrain.strategies.spells import (
    AGES,
    CLASSES,
    FACTOR_STEP,
    HAZARDS,
    MAX_STEPS,
    PUBLIC_PRIOR,
    SpotSpell,
    outlook,
)
from pricing_data.availability import AvailabilitySpan
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE

STRENGTH: Final = 10.0
"""How alike zones are: `python -m bench.deadline_prior` prints how likely its traces are by
strength."""
HALF_LIFE: Final = 7 * DAY
MAX_UNSEEN: Final = 90 * MINUTE
"""Looks further apart than this do not say what was between them."""


@dataclass(frozen=True, slots=True)
class KnownSpells:
    """The spell that was last seen in a market, in hours: up or down (None: nothing was seen), its
    `age` then, and how long ago that was; and the endings of down and up spells, seen and
    expected."""

    up: bool | None = None
    age: float = 0.0
    ago: float = 0.0
    endings: tuple[float, float] = (0.0, 0.0)
    expected: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, spans: Iterable[AvailabilitySpan], now: int) -> "KnownSpells":
        """The knowledge at a moment, from spans of one market that ended before."""
        # A look: the moment, whether spot was there, and whether it stayed so until the next look.
        # Where one span begins when another ends, the one that begins says how it goes on; of
        # several, the longest.
        known = sorted(part for span in spans if (part := span.before(now)) is not None)
        ends = {span.until: (span.up and span.ended != "evicted", False) for span in known}
        begins = {span.since: (span.up, span.until > span.since) for span in known}
        by_time = {**ends, **begins}.items()
        in_order = sorted(by_time)
        looks = [(at, up, lasts) for at, (up, lasts) in in_order]
        if not looks:
            return UNSEEN

        endings = [0.0, 0.0]
        expected = [0.0, 0.0]
        begun = looks[0][0]
        for (at, up, lasts), (later, then, _) in pairwise(looks):
            if not lasts and later - at > MAX_UNSEEN:
                begun = later
                continue

            weight = 0.5 ** ((now - later) / HALF_LIFE)
            side = int(up)
            is_same = lasts or up is then
            changed = later if is_same else (at + later) // 2
            since = (at - begun) / HOUR
            until = (changed - begun) / HOUR
            growth = HAZARDS[side].between(since, until)
            expected[side] += weight * growth
            if up is not then:
                endings[side] += weight
                begun = changed

        last, up, _ = looks[-1]
        age = (last - begun) / HOUR
        ago = (now - last) / HOUR
        return cls(up, age, ago, (endings[0], endings[1]), (expected[0], expected[1]))

    def continued(self, spans: Iterable[AvailabilitySpan], passed: int, now: int) -> "KnownSpells":
        """This knowledge after some time, with what was observed since."""
        later = KnownSpells.of(spans, now)
        weight = 0.5 ** (passed / HALF_LIFE)
        (down, up), (down_before, up_before) = later.endings, self.endings
        (few, many), (few_before, many_before) = later.expected, self.expected
        seen = (
            later
            if later.up is not None
            else KnownSpells(self.up, self.age, self.ago + passed / HOUR)
        )

        downs = down + weight * down_before
        ups = up + weight * up_before
        few_expected = few + weight * few_before
        many_expected = many + weight * many_before
        return KnownSpells(seen.up, seen.age, seen.ago, (downs, ups), (few_expected, many_expected))

    def factor(self, side: int, luck: float) -> float:
        """The factor of down (0) or up (1) spells that is not exceeded with a probability."""
        from scipy.special import gammaincinv

        shape = STRENGTH + self.endings[side]
        drawn = gammaincinv(shape, luck)
        hours = STRENGTH + self.expected[side]
        return float(drawn) / hours

    def with_endings(self, seen: float, expected: float) -> "KnownSpells":
        """The knowledge with more endings of up spells."""
        (down, up), (few, many) = self.endings, self.expected
        return KnownSpells(self.up, self.age, self.ago, (down, up + seen), (few, many + expected))


UNSEEN: Final = KnownSpells()
RETURNED: Final = 0.35
"""When spot that may be asked for returned, as a part of the time since it was last away: old
spells are met less often than the middle says, and a machine that dies young does not pay for its
start."""


def spot_spell(known: Iterable[KnownSpells], *, offered: bool) -> SpotSpell | None:
    """The spell of markets if any of them will do: up if one is, then as old as the oldest; None if
    nothing was seen.

    `offered`: a market may be asked now. If all were down when they were last seen, the spell is
    what it would be if one had returned since.
    """
    seen = [spells for spells in known if spells.up is not None]
    if not seen:
        return None

    up = any(spells.up for spells in seen)
    ages = [spells.age + spells.ago for spells in seen if spells.up is up]
    # If any market will do, they are down only until the first of them returns.
    age = max(ages) if up else min(ages)
    if offered and not up:
        up = True
        age = min(spells.ago for spells in seen) * RETURNED

    steps = []
    for side in (0, 1):
        ended = sum(spells.endings[side] for spells in seen)
        endings = STRENGTH + ended
        foreseen = sum(spells.expected[side] for spells in seen)
        expected = STRENGTH + foreseen
        step = round(log(endings / expected, FACTOR_STEP))
        bounded = min(max(step, -MAX_STEPS), MAX_STEPS)
        steps += [bounded] * 2

    age_time = round(age * HOUR)
    place = int(np.searchsorted(AGES, age_time, side="right"))
    age_class = place - 1
    return SpotSpell(age_class + CLASSES * up, tuple(steps))


def known_spells(spans: Iterable[AvailabilitySpan], now: int) -> dict[Market, KnownSpells]:
    """The knowledge of each market that was observed before a moment."""
    by_market: defaultdict[Market, list[AvailabilitySpan]] = defaultdict(list)
    for span in spans:
        if span.since <= now:
            by_market[span.market].append(span)
    return {market: KnownSpells.of(seen, now) for market, seen in by_market.items()}


# Endings per hour of a market where spot comes and goes as in the records of the prior.
_USUAL_RATE: Final = 0.4
_PUBLISHED_WEIGHT: Final = 1.0
_MAX_SHIFT: Final = 4.0
_ROUNDING: Final = 1e-9


def with_rate(known: KnownSpells, hazard: Hazard) -> KnownSpells:
    """The known spells, with what the eviction rate says of them; a published rate only shifts the
    prior.
    """
    rate = hazard.rate[0]
    if hazard.kind == "observed":
        return known.with_endings(
            rate * hazard.effective_hours, _USUAL_RATE * hazard.effective_hours
        )

    usual = UNRECORDED.evictions / UNRECORDED.hours if hazard.kind == "prior" else _USUAL_RATE
    shift = min(max(usual / rate, 1 / _MAX_SHIFT), _MAX_SHIFT)
    if abs(shift - 1) < _ROUNDING:
        return known
    return known.with_endings(_PUBLISHED_WEIGHT, _PUBLISHED_WEIGHT * shift)


GAP = 10 * MINUTE
"""How often capacity is looked at: the public traces that the prior is from change about as
often."""
MEMORY = 14 * DAY


def spell_of_prices(
    offers: Iterable[Offer], history: Callable[[Offer], PriceSeries], now: int
) -> SpotSpell | None:
    """The spell at a moment, from price histories up to it; None without any history.

    Spot capacity counts as there while any of the markets costs no more than on demand.
    """
    known = [(history(offer), offer.on_demand) for offer in offers]
    if not known:
        return None

    first = min(series.first for series, _ in known)
    begin = max(now - MEMORY, first)
    if begin >= now:
        return None

    ticks_back = (now - begin) // GAP
    back = np.arange(ticks_back, -1, -1)
    ticks = now - GAP * back
    up = np.zeros(ticks.size, dtype=np.bool_)
    for series, on_demand in known:
        up |= at_most(series.times, series.prices, ticks, on_demand)
    seen_spells = outlook(up, GAP, PUBLIC_PRIOR, int(ticks[0]))
    return seen_spells.at(now)


def at_most(times: Ints, prices: Ints, ticks: Ints, bound: int) -> Bools:
    """Whether a price was known and at most a bound at each tick; the last price is taken to
    continue.
    """
    at = times.searchsorted(ticks, side="right") - 1
    place = np.maximum(at, 0)
    below = prices[place] <= bound
    cheap: Bools = (at >= 0) & below
    return cheap
