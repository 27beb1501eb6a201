"""Plays a job over many past windows: every start gets a run of its decision object, and that run's
bill.

A play shows the decision object only the offers that a launch would show it (`UnderLiveRules`): a
launch offers no market above its on-demand price, and lets a market that evicted machines rest,
longer each time in a row, unless no other is left.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, inf
from operator import attrgetter
from statistics import NormalDist
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import Life, usd as dollars
from bidbrain.forecast.values import HIGH, CostsMore, ForecastJob, KnownPast, MarketBill, bills_of
from bidbrain.replay.job import run_job
from bidbrain.replay.market import GOLDEN_RATIO, Capacity, DrawnLives, MarketReplay, Mortality
from bidbrain.replay.run import ReplayedBudget, ReplayedJob, Run
from bidbrain.strategies.base import Decision, Holding, Situation, Strategy
from bidbrain.strategies.known_spells import UNSEEN, KnownSpells, with_rate
from bidbrain.strategies.proteus import RENEW_BEFORE
from bidbrain.strategies.spells import AGES, PUBLIC_PRIOR
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR

MAX_WINDOWS = 192
MIN_WINDOWS = 32
"""The fewest windows, unless the trials alone take as many decisions as may be taken; fewer for a
job so long that they would mostly overlap."""

_SEED = 20
_TRIALS, _EACH_FIRST = 16, 4
"""The trials, and of how many the first is played at once. What decides very often is played in
these alone."""
_OVERLAPPING, _FEWEST = 4, 8
"""How many windows of a long job may hold the same hour, and the fewest windows."""
_VERY_LONG = 1000 * HOUR
"""A job that lasts longer, and longer than all that is known of the past, is played in its trials
alone: each of them runs through the whole past, from another of its moments on, so that more of
them would say the same again. Its windows count as one (`PastOutcomes.independent`), and P10 and
P90 are the ends, in which the price of on-demand machines outweighs any play."""
_CLEAR_EXCESS = 1.5
"""Plays leave no doubt that a job costs more than some dollars if all of them cost more than this
multiple."""
_MAX_LUCK = 5.0
_PLASTIC = 0.7548776662466927
"""With its square, it spreads points evenly over a square (Roberts' sequence)."""


@dataclass(frozen=True, slots=True)
class Played:
    """One play: when it began, what it cost in each market, how long it took, whether it ended by
    itself, and whether it rented spot machines.
    """

    start: int
    bills: tuple[MarketBill, ...]
    hours: float
    finished: bool
    on_spot: bool = True

    @property
    def usd(self) -> float:
        return sum(bill.usd for bill in self.bills)


Ends = tuple[float, float]
"""The least and the most that something can be."""


@dataclass(frozen=True)
class PastMarket:
    """The past as a market to play in. Starts later than the end minus the longest job run into the
    beginning. What is `known` is not played again.
    """

    job: ForecastJob
    past: KnownPast
    known: dict[tuple[int, int], tuple[Played, int]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def first(self) -> int:
        """When the history of every market has begun."""
        firsts = []
        for offer in self.job.offers:
            history = self.past.histories[offer.market]
            firsts.append(history.first)
        return max(firsts)

    @property
    def span(self) -> int:
        """How much history there is."""
        return self.past.now - self.first

    @cached_property
    def histories(self) -> Mapping[Market, PriceSeries]:
        """The histories of the job's markets, continued by their beginning for as long as a job may
        take.
        """
        times = self.job.times.drawn(_MAX_LUCK)
        lasting = self.job.longest + times.order + times.ending
        tail = lasting + 2 * HOUR
        span = self.past.now - self.first
        laps = -(-tail // max(span, 1))
        histories = {}

        for market in (offer.market for offer in self.job.offers):
            remembered = self.past.histories[market]
            known = remembered.window(self.first, self.past.now)
            moments = [known.times[:-1] + lap * span for lap in range(laps + 1)]
            lapped = (laps + 1) * span
            end = self.first + lapped
            moments.append(np.array([end], dtype=np.int64))
            repeated = [known.prices[:-1]] * (laps + 1)
            last_price = known.prices[-1:]
            prices = [*repeated, last_price]
            all_moments = np.concatenate(moments)
            all_prices = np.concatenate(prices)
            histories[market] = PriceSeries(market, all_moments, all_prices)

        return histories

    @cached_property
    def _replay(self) -> MarketReplay:
        return MarketReplay(self.histories.values())

    @cached_property
    def _spells(self) -> Mapping[Market, KnownSpells]:
        """The known spells of each market that evicts for lack of capacity."""
        hazards = {offer.market: self.past.hazards.get(offer.market) for offer in self.job.offers}
        return {
            market: with_rate(self.past.spells.get(market, UNSEEN), hazard)
            for market, hazard in hazards.items()
            if hazard is not None
        }

    def play(self, start: int, number: int, most_usd: float = inf) -> tuple[Played, int]:
        """The play that begins at a moment, and the number of its decisions; its luck is drawn by
        `number`.

        Once a play has cost more than `most_usd` it may end early, and is unfinished.
        """
        known = self.known.get((start, number))
        if known is not None and known[0].usd <= most_usd:
            return known
        chance = np.random.default_rng([_SEED, number])
        # Evenly spread over the plays, in no order: a few plain draws from a wide distribution
        # would shift its median.
        speed = NormalDist().inv_cdf((0.5 + number * GOLDEN_RATIO) % 1.0)
        job = with_luck(self.job, float(chance.normal()), speed)
        if job.warnings is not None:
            job = replace(job, warnings=replace(job.warnings, seed=number))

        market = self._replay if not self._spells else self._replay_from(start, number, chance)
        run, decisions = run_from(job, market, self.histories, start, most_usd)
        played = played_of(run, job, self.histories, start), decisions
        if most_usd == inf:
            self.known[start, number] = played
        return played

    def _replay_from(self, start: int, number: int, chance: np.random.Generator) -> MarketReplay:
        """The market with spells of capacity drawn as if `start` were now, and with the longest
        lives of its cloud.
        """
        # Markets are alike in what is unknown of them: one draw of each side moves all rates.
        first_luck = 0.5 + number * _PLASTIC
        first_part = first_luck % 1.0
        second_luck = number * _PLASTIC**2
        second_part = 0.5 + second_luck
        second_draw = second_part % 1.0
        luck = (float(first_part), float(second_draw))
        end = start + self.job.longest + 2 * HOUR
        capacities = {
            market: drawn_capacity(known, start, end, luck, chance)
            for market, known in self._spells.items()
        }
        limits = {market: self.past.hazards[market] for market in self._spells}
        lives = {
            market: Mortality(0.0, longest=hazard.longest_life)
            for market, hazard in limits.items()
            if hazard is not None and hazard.longest_life < inf
        }

        return self._replay.with_capacities(capacities, DrawnLives(lives, 0) if lives else None)

    def reference(self, starts: Ints) -> Floats:
        """Dollars per hour at each start, if the job ran on the cheapest open market, or on
        demand."""
        usd_of_baseline = self.job.baseline.offer.on_demand / self.job.baseline.offer.nu
        cheapest = np.full(starts.size, usd_of_baseline)
        for offer in self.job.offers:
            history = self.past.histories[offer.market]
            in_force = np.searchsorted(history.times, starts, side="right") - 1
            listed = history.prices[in_force]
            prices = listed.astype(np.float64)
            usable = prices <= offer.on_demand
            usd_per_nu = np.where(usable, prices / offer.nu, np.inf)
            cheapest = np.minimum(cheapest, usd_per_nu)

        reliable = self.job.reliable
        held = 0.0
        if reliable is not None:
            held = reliable.machines * reliable.offer.on_demand
        usd: Floats = (cheapest * self.job.most_nu + held) / NANOS_PER_DOLLAR
        return usd

    def ends(self, played: Sequence[Played]) -> tuple[Ends, Ends, Ends]:
        """The least and the most hours, dollars, and dollars per hour that the job can take: what
        was played, on-demand machines throughout, and, if the job rents spot machines, these
        throughout at the present price.
        """
        job = self.job
        reliable = 0
        if job.reliable is not None:
            reliable = job.reliable.machines * job.reliable.offer.on_demand
        own = job.baseline.machines * job.baseline.offer.on_demand
        throughout = [(own + reliable, job.baseline.machines * job.baseline.offer.nu)]
        if any(play.on_spot for play in played):
            now = np.array([self.past.now], dtype=np.int64)
            level = float(self.reference(now)[0]) * NANOS_PER_DOLLAR
            throughout.append((round(level), job.most_nu))

        longest = max(play.hours for play in played)
        outcomes = [(play.hours, play.usd) for play in played if play.finished]
        for price, nu in throughout:
            works = min(job.work / (nu * job.recovery.speed), job.longest - job.overheads.startup)
            life = Life(0, job.overheads.startup + round(works) + job.times.ending, job.at_end)
            lasts = (job.times.order + life.end) / HOUR
            outcomes.append((lasts, dollars(job.billing.bill(life, price).amount)))

        hours = [longest, *(hours for hours, _ in outcomes)]
        usd = [usd for _, usd in outcomes]
        rates = [usd / hours for hours, usd in outcomes]
        rates += [play.usd / play.hours for play in played]
        return (min(hours), max(hours)), (min(usd), max(usd)), (min(rates), max(rates))


def with_luck(job: ForecastJob, times: float, speed: float) -> ForecastJob:
    """The job with the luck of one launch in the times around its work and in the speed of its
    machines, each from a standard normal distribution. Start-ups have that of the times."""
    faster = exp(job.speed_spread * speed)
    startup = job.overheads.startup
    spread = job.times.startup_spread * times
    factor = exp(spread)
    drawn_startup = round(startup * factor)
    overheads = replace(job.overheads, startup=drawn_startup)
    drawn_times = job.times.drawn(times)
    drawn_speed = job.recovery.speed * faster
    recovery = replace(job.recovery, speed=drawn_speed)
    latest = job.longest + overheads.startup
    return replace(
        job, times=drawn_times, recovery=recovery, overheads=overheads, longest=latest - startup
    )


def run_from(
    job: ForecastJob,
    market: MarketReplay,
    histories: Mapping[Market, PriceSeries],
    start: int,
    most_usd: float = inf,
) -> tuple[Run, int]:
    """The run of a job that is launched at a moment of a market, and the number of its
    decisions."""
    decider = UnderLiveRules(job.decider(start))
    first = start + job.times.order
    budget = None
    if job.budget_usd is not None:
        budget = ReplayedBudget(job.budget_usd, job.billing, histories, job.lease, job.reliable)

    enough = None
    if most_usd != inf:
        enough = CostsMore(job, histories, most_usd)
    replayed = ReplayedJob(
        first,
        job.work,
        first + job.longest,
        job.offers,
        job.baseline,
        job.most_nu,
        budget=budget,
        nodes=job.nodes,
        scaling=job.scaling,
        saved_gb=job.saved_gb,
        most_nodes=job.most_nodes,
        timed=job.timed,
        warnings=job.warnings,
        enough=enough,
    )

    return run_job(replayed, decider, market, job.overheads, job.recovery), decider.decisions


def played_of(
    run: Run, job: ForecastJob, histories: Mapping[Market, PriceSeries], start: int
) -> Played:
    """The bill of a run, and how long it took."""
    ended_work = run.job.limit if run.end is None else run.end
    ended = ended_work + job.times.ending
    finished = run.end is not None or job.timed
    bills = bills_of(run, job, histories)
    on_spot = any(tenure.rent.spot for tenure in run.tenures)
    return Played(start, bills, (ended - start) / HOUR, finished, on_spot)


def plays(market: PastMarket) -> list[Played]:
    """Plays over windows spread evenly over the past, which end within the past if it is long
    enough.
    """
    first = trials(market)
    hours = [played.hours for played, _ in first]
    long_hours = np.quantile(hours, HIGH)
    longest = HOUR * float(long_hours)
    if longest > max(market.span, _VERY_LONG):
        return sorted((played for played, _ in first), key=attrgetter("start"))

    end = market.past.now - round(longest)
    if end - market.first < 2 * longest:
        # Too little history: windows may begin anywhere, and continue in its beginning.
        end = market.past.now

    decisions_in_all = sum(decisions for _, decisions in first)
    mean_decisions = decisions_in_all / len(first)
    each = max(mean_decisions, 1.0)
    affordable = market.job.most_decisions / each
    usual = _TRIALS if affordable <= _TRIALS else MIN_WINDOWS
    overlapping = _OVERLAPPING * market.span
    windows = np.clip(overlapping / longest, _FEWEST, usual)
    least = int(windows)
    count = int(np.clip(affordable, least, MAX_WINDOWS))

    if count <= _TRIALS:
        # All trials, or every second one; either all of them have been played, or only the first
        # ones.
        part = _EACH_FIRST // 2 if count == _FEWEST else 1
        sampled = _trial_starts(market)[::part]
        others = [trial for trial in sampled if trial[0] % _EACH_FIRST]
        if len(first) < _TRIALS:
            first += [market.play(start, number) for number, start in others]
        first_played = (played for played, _ in first)
        return sorted(first_played, key=attrgetter("start"))

    starts = _spread(market.first, end, count)
    return [market.play(start, number)[0] for number, start in enumerate(starts)]


def clearly_costs_more(market: PastMarket, usd: float) -> bool:
    """Whether a few plays leave no doubt that the job is expected to cost more than this."""
    most = _CLEAR_EXCESS * usd
    first_trials = _trial_starts(market)[::_EACH_FIRST]
    return all(market.play(start, number, most)[0].usd > most for number, start in first_trials)


def trials(market: PastMarket) -> list[tuple[Played, int]]:
    """Plays that show how long the job takes and how often it decides; few of a job that is played
    over few windows.
    """
    trials = [market.play(start, number) for number, start in _trial_starts(market)[::_EACH_FIRST]]
    each = sum(decisions for _, decisions in trials) / len(trials)
    if each * MIN_WINDOWS < market.job.most_decisions:
        trials += [
            market.play(start, number)
            for number, start in _trial_starts(market)
            if number % _EACH_FIRST
        ]

    return trials


def _trial_starts(market: PastMarket) -> list[tuple[int, int]]:
    """The number and the start of each trial."""
    return list(enumerate(_spread(market.first, market.past.now, _TRIALS)))


def _spread(begin: int, end: int, count: int) -> list[int]:
    latest = max(end, begin + 1)
    moments = np.linspace(begin, latest, count, endpoint=False)
    starts: list[int] = moments.astype(np.int64).tolist()
    return starts


_ENOUGH: Final = 1 << 30
"""Machines of a market that has spot capacity: more than any job wants."""
_AGES: Final = (AGES / HOUR).tolist()
_BEFORE: Final = HOUR


class _SpellLengths:
    """How long spells of one side last, in hours, when their endings have a factor."""

    def __init__(self, rates: tuple[float, ...], factor: float) -> None:
        self._rates = [max(rate * factor, 1e-6) for rate in rates]
        widths = np.diff(_AGES)
        inner_rates = self._rates[:-1]
        endings = np.array(inner_rates) * widths
        summed = np.cumsum(endings).tolist()
        self._sums = [0.0, *summed]
        alive = np.exp(-np.array(self._sums))
        spans = np.append(widths, np.inf)
        minus_ended = np.expm1(-np.array(self._rates) * spans)
        self._lived = np.cumsum(alive * -minus_ended / np.array(self._rates))
        self.mean = float(self._lived[-1])

    def rest(self, age: float, endings: float) -> float:
        """How much longer a spell of some age lasts, if it ends once this many endings were
        expected.
        """
        at = bisect_right(_AGES, age) - 1
        lived = self._rates[at] * (age - _AGES[at])
        until_now = self._sums[at] + lived
        total = until_now + endings
        at = bisect_right(self._sums, total) - 1
        more = total - self._sums[at]
        end_age = _AGES[at] + more / self._rates[at] - age
        return float(end_age)

    def age(self, share: float) -> float:
        """The age of a spell that is met at any moment: it is younger with this probability."""
        target = share * self.mean
        place = np.searchsorted(self._lived, target)
        at = min(int(place), len(_AGES) - 1)
        before = 0.0
        if at != 0:
            before = float(self._lived[at - 1])
        alive = np.exp(-self._sums[at])
        ending = (target - before) * self._rates[at]
        part = min(ending / alive, 1 - 1e-12)
        log_staying = np.log1p(-part)
        ended_at = _AGES[at] - log_staying / self._rates[at]
        return float(ended_at)


def drawn_capacity(
    known: KnownSpells, start: int, end: int, luck: tuple[float, float], chance: np.random.Generator
) -> Capacity:
    """A market's capacity from shortly before `start` until `end`, if `start` were now; `luck`
    draws the factors of down and up spells."""
    sides = []
    for side, rates in enumerate((PUBLIC_PRIOR.down, PUBLIC_PRIOR.up)):
        factor = known.factor(side, luck[side])
        sides.append(_SpellLengths(rates, factor))

    if known.up is None:
        both_sides = sides[0].mean + sides[1].mean
        is_up = chance.random() * both_sides < sides[1].mean
        up = int(is_up)
        age = sides[up].age(float(chance.random()))
        at = float(start)
    else:
        up = int(known.up)
        age = known.age
        at = start - known.ago * HOUR

    begun = at - age * HOUR
    times = [begun - _BEFORE, at - age * HOUR]
    states = [1 - up, up]
    while at < end:
        rest = sides[up].rest(age, float(chance.exponential()))
        at += rest * HOUR
        up = 1 - up
        age = 0.0
        times.append(at)
        states.append(up)

    moments = np.array(times).astype(np.int64)
    kept = np.append(np.diff(moments) > 0, True)
    counts = np.array(states, dtype=np.int64)
    kept_counts = counts[kept]
    return Capacity(moments[kept], kept_counts * _ENOUGH)


FIRST_REST, LONGEST_REST = 2 * MINUTE, 60 * MINUTE


@dataclass(slots=True)
class UnderLiveRules:
    """A strategy for one play, with a count of its decisions, and the markets that have evicted
    machines.
    """

    strategy: Strategy
    decisions: int = 0
    _held: dict[int, Holding] = field(default_factory=dict)
    _returned: set[int] = field(default_factory=set)
    _rests: dict[Market, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.strategy.name

    def decide(self, situation: Situation) -> Decision:
        """The strategy's decision among the offers that a launch would show."""
        self.decisions += 1
        held = {holding.allocation: holding for holding in situation.holdings}
        for number, holding in self._held.items():
            if number not in held and number not in self._returned and holding.rent.spot:
                # A market that has evicted machines rests, and longer each time.
                market = holding.rent.offer.market
                now = situation.now
                until, times = self._rests.get(market, (now, 0))
                times = times + 1 if now <= until + LONGEST_REST else 1
                doubled = FIRST_REST << (times - 1)
                pause = min(doubled, LONGEST_REST)
                self._rests[market] = now + pause, times

        self._held = held

        at_fair_price = []
        for offer in situation.offers:
            price = situation.price(offer)
            if price <= offer.on_demand:
                at_fair_price.append(offer)
        fair = tuple(at_fair_price)
        if not fair and not situation.holdings and situation.leaving:
            return Decision((), None, "decides after the evictions")

        resting = {market for market, (until, _) in self._rests.items() if until > situation.now}
        calm = tuple(offer for offer in fair if offer.market not in resting) if resting else fair
        among = calm or fair
        seen = situation if among == situation.offers else replace(situation, offers=among)
        decision = self.strategy.decide(seen)
        self._returned |= {action.allocation for action in decision.returns}

        return decision


@dataclass(slots=True)
class RareLooks:
    """A strategy for one play. Once a look has changed nothing, the next one is after a `pause`, or
    before the end of an hour that is paid, if that is no sooner than after `least`.
    """

    strategy: Strategy
    pause: int
    least: int = 0
    _held: tuple[int, ...] = field(default=(), init=False)

    @property
    def name(self) -> str:
        return self.strategy.name

    def decide(self, situation: Situation) -> Decision:
        """The strategy's decision; the next one later if the last one changed nothing."""
        decision = self.strategy.decide(situation)
        now = situation.now
        before = self._held
        self._held = tuple(holding.allocation for holding in situation.holdings)
        is_settled = (
            holding.ready <= now and holding.leaves_at is None for holding in situation.holdings
        )
        settled = all(is_settled)
        changed = self._held != before or not settled or bool(decision.returns)
        if not self._held or changed or decision.wake_at is None:
            return decision

        # The next moment at which renewals are decided, shortly before the end of a paid hour.
        starts = (holding.start for holding in situation.holdings)
        soon = now + self.least
        paid_until = min(soon + HOUR - (soon + RENEW_BEFORE - start) % HOUR for start in starts)
        until = min(now + self.pause, paid_until)
        return replace(decision, wake_at=max(decision.wake_at, until))
