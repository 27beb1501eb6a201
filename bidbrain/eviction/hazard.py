"""Hazard: how often a cloud reclaims a machine regardless of the price, from all available
evidence.

A market's evictions are modeled as Poisson with a rate per machine-hour, and the rate as
Gamma(evictions, hours): the conjugate prior, to which the market's own evictions and hours are
added. Evidence from elsewhere makes the prior, with limited weights that the basis of every
estimate repeats:

- a published figure, however long its history, counts as at most `PUBLISHED` evictions;
- evidence from siblings (same type, then same family and region, then the cloud) counts as at most
  as many evictions as their similarity supports: estimated from how much their rates differ, else
  `SIBLINGS`.

Several pieces of evidence are averaged on the log scale, weighted by their evictions: added like
observations, the one with the rarest evictions would outweigh all others, because rare evictions
come with many hours. The prior is weaker where the pieces contradict each other, and where the
market's own observations contradict it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, inf, log, log1p
from typing import Literal, get_args

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing.rules import terms_of
from bidbrain.eviction.survival import (
    AGELESS,
    NOTHING,
    AgeProfile,
    Exposure,
    by_market,
    exposure_of_lives,
)
from pricing_data.availability import AvailabilitySpan, Interruption, Lifetime
from pricing_data.known_clouds import markets_of
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, counted

PUBLISHED = 4.0
SIBLINGS = (4.0, 2.0, 1.0)
"""Same type; same family and region; same cloud."""
_ALIKE_AT_MOST = 20.0
_SIBLINGS_TO_COMPARE = 4
# Jeffreys' prior of a Poisson rate: half an eviction in no time.
_JEFFREYS = 0.5
UNRECORDED = Exposure(0.5, 10.0)
"""Used where nothing is recorded: wide, around one eviction in 20 hours."""
_RECENT_DAYS = 30 * DAY
_HALF_LIFE = 30 * DAY
"""The time after which observed availability counts half."""
_USUAL_BUCKET = 0.125
"""Share of machines interrupted in a month, the middle of AWS's buckets: it leaves the prior as it
is."""
# A band without an upper end (Azure's 20+) is assumed to reach this multiple of its lower end.
_OPEN_BAND = 2.0


# Largest loss in log-likelihood of the observations for which a prior keeps its weight.
_CONTRADICTION = 2.0
_BELIEFS = np.geomspace(1e-6, 1.0, 241)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evictions and machine-hours observed in one market."""

    market: Market
    exposure: Exposure


EvidenceKind = Literal["observed", "published", "prior"]


@dataclass(frozen=True, slots=True)
class RateEvidence:
    """One contribution to a rate, after weighting, its source in words, and what kind of record
    that is.
    """

    source: str
    exposure: Exposure
    kind: EvidenceKind = "observed"


@dataclass(frozen=True)
class Hazard:
    """An eviction rate per machine-hour as Gamma(evictions, hours), and how it varies with a
    machine's age.

    `prior` is evidence from elsewhere, `observed` evidence from the market itself. `longest_life`
    is the age at which the cloud ends every machine of the kind (GCP's preemptible machines: 24
    hours), if there is one.
    """

    prior: tuple[RateEvidence, ...]
    observed: Exposure = NOTHING
    ages: AgeProfile = AGELESS
    longest_life: float = inf

    # A plan asks for the risks at many ages, and one market's evidence stays the same.
    @cached_property
    def _total(self) -> Exposure:
        pooled = NOTHING
        if self.prior:
            # Several estimates of a rate are combined to the mean of their logarithms, each
            # weighted by its evictions. The logarithm of a Gamma rate of shape a has a variance of
            # about 1/a; the variance between the estimates is added.
            weights = np.array([piece.exposure.evictions for piece in self.prior])
            rates = [piece.exposure.evictions / piece.exposure.hours for piece in self.prior]
            logs = np.log(rates)
            mean = float(np.average(logs, weights=weights))
            between = float(np.average((logs - mean) ** 2, weights=weights))
            shape = max(1 / (1 / float(weights.sum()) + between), _JEFFREYS)
            pooled = Exposure(shape, shape / exp(mean))

        total = _believed(pooled, self.observed) + self.observed
        # With hardly any eviction, observed or assumed, the rate is known to be low, but not to be
        # 0.
        return Exposure(max(total.evictions, _JEFFREYS), total.hours)

    @property
    def effective_hours(self) -> float:
        """Number of observed machine-hours that the estimate is equivalent to."""
        return self._total.hours

    @cached_property
    def rate(self) -> tuple[float, float, float]:
        """The mean rate per hour and its 95% credible interval."""
        from scipy.special import gammaincinv

        total = self._total
        low, high = (
            float(gammaincinv(total.evictions, share)) / total.hours for share in (0.025, 0.975)
        )
        return total.evictions / total.hours, low, high

    def cumulative(self, age: float, hours: float) -> tuple[float, float, float]:
        """-log of the probability of surviving `hours` more from an age on, and its interval.

        The mean averages survival over the rate's distribution. Far out it is dominated by the
        smallest rates, and the interval is widened to include it.
        """
        if age + hours > self.longest_life:
            return inf, inf, inf
        at_mean_rate = self.ages.mean_hours(age, hours)
        _, low, high = self.rate
        total = self._total
        middle = total.evictions * log1p(at_mean_rate / total.hours)
        return middle, min(low * at_mean_rate, middle), high * at_mean_rate

    @property
    def kind(self) -> EvidenceKind:
        """The strongest kind of evidence behind the rate."""
        of_prior = {piece.kind for piece in self.prior}
        own = {"observed"} if self.observed.hours else set()
        kinds = of_prior | own
        return next(kind for kind in get_args(EvidenceKind) if kind in kinds)

    @property
    def basis(self) -> str:
        """The evidence behind the rate, in words."""
        rate = self.rate[0]
        own = (RateEvidence("own observations", self.observed),) if self.observed.hours else ()
        named = (f"{piece.source} ({piece.exposure})" for piece in self.prior + own)
        sources = "; ".join(named)
        return f"capacity evictions: {rate:.3g} per hour, from {sources}"


def hazard_of(
    market: Market,
    evidence: Iterable[Evidence],
    published: Sequence[Interruption],
    ages: AgeProfile = AGELESS,
) -> Hazard | None:
    """The hazard of a market from observations anywhere and published figures; None without any
    evidence.
    """
    watched = [record for record in evidence if record.exposure.hours > 0]
    own = sum((record.exposure for record in watched if record.market == market), NOTHING)
    pieces_published = _published_pieces(market, published, watched)
    pieces_of_siblings = _sibling_pieces(market, watched)
    pieces = [*pieces_published, *pieces_of_siblings]
    if not pieces and 0 < own.hours < UNRECORDED.hours:
        pieces = [RateEvidence("a prior, because little was observed", _missing(own), "prior")]
    if pieces or own.hours:
        return Hazard(tuple(pieces), own, ages)
    return None


def _believed(prior: Exposure, observed: Exposure) -> Exposure:
    """The part of a prior that the observations do not contradict.

    Scaled by w, Gamma(a, b) keeps its mean and makes n evictions in h hours as likely as a negative
    binomial of shape w a. Uses the largest w that is not worse than the best.
    """
    if not prior.evictions or not observed.hours:
        return prior

    from scipy.special import gammaln

    shape = _BELIEFS * prior.evictions
    hours = _BELIEFS * prior.hours
    n = observed.evictions
    h = observed.hours
    growth = gammaln(n + shape)
    silence = hours / (hours + h)
    event = h / (hours + h)
    likely = growth - gammaln(shape) + shape * np.log(silence) + n * np.log(event)

    least_likely = likely.max() - _CONTRADICTION
    is_believed = likely >= least_likely
    return prior.scaled(float(_BELIEFS[np.flatnonzero(is_believed)[-1]]))


def evidence_of_lives(lives: Iterable[Lifetime], ages: AgeProfile = AGELESS) -> list[Evidence]:
    """Groups lives by market into evidence of rates that vary with age as `ages` has it."""
    return [
        Evidence(
            Market(cloud, markets_of(cloud).region_of_zone(zone), zone, instance_type),
            exposure_of_lives(known, ages),
        )
        for (cloud, zone, instance_type), known in by_market(lives).items()
    ]


def evidence_of_spans(spans: Iterable[AvailabilitySpan], now: int) -> list[Evidence]:
    """The evidence of each market at a moment; older spans count less. Machines held together count
    as one.
    """
    seen: defaultdict[Market, Exposure] = defaultdict(Exposure)
    for whole in spans:
        span = whole.before(now)
        if span is not None and span.up and span.until > span.since:
            watched = span.until - span.since
            hours = watched / HOUR
            life = Exposure(float(span.ended == "evicted"), hours)
            half_lives = (now - span.until) / _HALF_LIFE
            seen[span.market] += life.scaled(0.5**half_lives)
    return [Evidence(market, exposure) for market, exposure in seen.items()]


def family_of(instance_type: str) -> str:
    """The family of a type, as its cloud spells it.

    >>> family_of("c4.2xlarge"), family_of("n1-standard-8"), family_of("Standard_NC24s_v2"), family_of("v100x4")
    ('c4', 'n1-standard', 'Standard_NC', 'v100')
    """
    if "." in instance_type:
        return instance_type.partition(".")[0]

    head, dash, last = instance_type.rpartition("-")
    if dash:
        return head

    tier, _, rest = instance_type.partition("_")
    if rest:
        digits = (i for i, letter in enumerate(rest) if letter.isdigit())
        letters = next(digits, len(rest))
        return f"{tier}_{rest[:letters]}"

    return last.rpartition("x")[0] or last


# --- siblings ---


def _sibling_pieces(market: Market, watched: Sequence[Evidence]) -> list[RateEvidence]:
    """Siblings from the nearest level on, each counted once, at the nearest level it belongs to."""
    kin = ("of the same type", "of the same family and region", f"of {market.cloud}")
    siblings = [
        sibling
        for sibling in watched
        if sibling.market != market and sibling.market.cloud == market.cloud
    ]

    pieces = []
    in_order = zip(kin, SIBLINGS, strict=True)
    for level, (name, stated) in enumerate(in_order):
        near = []
        for sibling in siblings:
            level_of = _level(sibling.market, market)
            if level_of == level:
                near.append(sibling)
        if not near:
            continue

        # The siblings' common rate, with the weight in evictions that their similarity supports.
        total = sum((sibling.exposure for sibling in near), NOTHING)
        total += _missing(total)
        weight = _alike(near, stated)
        # With no eviction at all the rate is still known to be low: half an eviction is assumed.
        total = total if total.evictions else Exposure(_JEFFREYS, total.hours)
        markets = counted(len({sibling.market for sibling in near}), "market")
        share = min(1.0, weight / total.evictions)
        pieces.append(RateEvidence(f"{markets} {name}", total.scaled(share)))

    return pieces


def _level(other: Market, market: Market) -> int:
    """How near a market of the same cloud is: of the same type, of the same family and region, or
    neither.
    """
    if other.instance_type == market.instance_type:
        return 0
    same_family = family_of(other.instance_type) == family_of(market.instance_type)
    if same_family and other.region == market.region:
        return 1
    return 2


def _missing(observed: Exposure) -> Exposure:
    """The assumed addition to a short observation: some seconds do not make a rate."""
    recorded = observed.hours / UNRECORDED.hours
    return UNRECORDED.scaled(max(1 - recorded, 0.0))


def _alike(siblings: Sequence[Evidence], stated: float) -> float:
    """Shape of the Gamma distribution of siblings' rates, by moments (empirical Bayes); `stated` if
    there are few.
    """
    by_market: dict[Market, Exposure] = {}
    for sibling in siblings:
        before = by_market.get(sibling.market, NOTHING)
        by_market[sibling.market] = before + sibling.exposure
    if len(by_market) < _SIBLINGS_TO_COMPARE:
        return stated
    counts_of_markets = [exposure.evictions for exposure in by_market.values()]
    counts = np.array(counts_of_markets, dtype=np.float64)
    hours = np.array([exposure.hours for exposure in by_market.values()])
    return shape_of_rates(counts, hours * counts.sum() / hours.sum())


def shape_of_rates(counts: Floats, expected: Floats) -> float:
    """The shape of the Gamma distribution of rates, relative to what is expected of each, that
    explains how far counts are from it: low where rates differ, and at most `_ALIKE_AT_MOST`.

    A count of expectation m has variance m, plus m^2 / shape if rates differ.
    """
    squares = (counts - expected) ** 2
    excess = float(np.sum(squares - expected))
    if excess <= 0:
        return _ALIKE_AT_MOST
    total = np.sum(expected**2)
    return float(np.clip(total / excess, _JEFFREYS, _ALIKE_AT_MOST))


# --- published figures ---


def _published_pieces(
    market: Market, published: Sequence[Interruption], watched: Sequence[Evidence]
) -> list[RateEvidence]:
    # Figures are published for a zone, or for a region as a whole (zone `-`); those for all
    # operating systems are stored under the Linux market.
    place = (market.cloud, market.region, market.instance_type)
    own = []
    for figure in published:
        about = figure.market
        is_there = (about.cloud, about.region, about.instance_type) == place
        if not is_there or about.zone not in (market.zone, "-"):
            continue
        if about.os == market.os or terms_of(market.cloud).any_system:
            own.append(figure)

    rates = [figure for figure in own if figure.measure == "preemption-rate"]
    bands = [figure for figure in own if figure.measure == "eviction-rate"]
    buckets = [figure for figure in own if figure.measure == "monthly-bucket"]
    pieces = []
    if rates:
        # GCP: the daily share of preempted machines, averaged over the last month because single
        # days scatter.
        newest = max(figure.as_of for figure in rates)
        recent = [figure for figure in rates if figure.as_of > newest - _RECENT_DAYS]
        hourly_rates = (_hourly(figure.high, 24) for figure in recent)
        hourly = sum(hourly_rates) / len(recent)
        exposure = Exposure(_JEFFREYS, 24.0 * len(recent))
        if hourly != 0:
            exposure = Exposure(PUBLISHED, PUBLISHED / hourly)
        source = f"GCP's preemption rate of {counted(len(recent), 'day')}"
        pieces.append(RateEvidence(source, exposure, "published"))
    if bands:
        # Azure: the share of machines evicted per hour, as a band; the Gamma has the band's mean
        # and spread.
        band = max(bands, key=lambda figure: figure.as_of)
        low = _hourly(band.low, 1)
        high = _hourly(band.high if band.high < 1 else max(_OPEN_BAND * band.low, band.low), 1)
        mean = (low + high) / 2
        deviation = (high - low) / 12**0.5
        shape = min(PUBLISHED, (mean / deviation) ** 2) if deviation else PUBLISHED
        source = f"Azure's eviction band of {band.low:.0%} to {band.high:.0%} per hour"
        pieces.append(RateEvidence(source, Exposure(shape, shape / mean), "published"))

    if buckets:
        elsewhere = [record for record in watched if record.market != market]
        newest_bucket = max(buckets, key=lambda figure: figure.as_of)
        pieces.append(_bucket(newest_bucket, published, elsewhere))

    return pieces


def _bucket(
    figure: Interruption, published: Sequence[Interruption], watched: Sequence[Evidence]
) -> RateEvidence:
    """AWS: a bucket only says which markets are interrupted more often. The scale comes from
    observed markets.

    evictions = scale x middle of the bucket x hours, with one scale for all observed markets whose
    bucket is known. Without any, the bucket only shifts the prior: unknown rates do not become
    known by their order.
    """
    newest = {
        _place(bucket.market): bucket
        for bucket in sorted(published)
        if bucket.measure == "monthly-bucket"
    }

    known = []
    for record in watched:
        place = _place(record.market)
        if place in newest:
            known.append((record.exposure, newest[_place(record.market)]))

    weights = (exposure.hours * _middle(bucket) for exposure, bucket in known)
    weighted = sum(weights)
    label = f"AWS Spot Advisor's bucket of {figure.low:.0%} to {figure.high:.0%} per month"
    if not weighted:
        label = f"{label}, which shifts a prior, because no observed market has a bucket"
        hours = UNRECORDED.hours * _USUAL_BUCKET / _middle(figure)
        return RateEvidence(label, Exposure(UNRECORDED.evictions, hours), "prior")

    total = sum((exposure for exposure, _ in known), NOTHING)
    # As if a short observation had gone on for as long as what stands in for a record.
    evictions = total.evictions + _JEFFREYS
    weighted_hours = weighted * max(UNRECORDED.hours / total.hours, 1.0)
    scale = evictions / weighted_hours
    rate = scale * _middle(figure)
    return RateEvidence(
        f"{label}, scaled by evidence from {counted(len(known), 'market')}",
        Exposure(PUBLISHED, PUBLISHED / rate),
        "published",
    )


def _place(market: Market) -> tuple[str, str, str, str]:
    """The market without its zone: the Advisor has figures for regions only."""
    return market.cloud, market.region, market.instance_type, market.os


def _middle(bucket: Interruption) -> float:
    upper = max(0.25, bucket.low)
    return (bucket.low + min(bucket.high, upper)) / 2


def _hourly(share: float, hours: float) -> float:
    """The hourly rate that evicts this share of machines within `hours`."""
    return -log(1 - min(share, 0.999)) / hours


# Where clouds take machines back whatever the price, "no record of an eviction" does not mean "no
# eviction": a prior stands in for the record, wide enough for markets that evict once a month and
# for those that evict several times a day. Machines of the local market, and AWS's until it stopped
# deciding by bids, are evicted by the price alone.
PRIOR = Hazard(
    (RateEvidence("a prior, because no eviction rate is recorded", UNRECORDED, "prior"),)
)
"""0.05 per machine-hour, with a 95% interval from almost none to 0.25."""


def in_force(market: Market, hazard: Hazard | None, at: int) -> Hazard | None:
    """The hazard of a market's machines at a moment; None where only the price evicts."""
    terms = terms_of(market.cloud)
    evicts_at_any_bid = terms.capacity_since is not None and at >= terms.capacity_since
    known = PRIOR if hazard is None and evicts_at_any_bid else hazard
    longest = terms.longest_hours if at < terms.aged_until else inf
    if known is None:
        return None
    return replace(known, longest_life=min(known.longest_life, longest))
