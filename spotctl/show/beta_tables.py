"""Eviction estimates on the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bidbrain.eviction.calibration import Calibration, Skill
from pricing_data.units import age, format_time
from spotctl.analyses.beta import Answer
from spotctl.show.terminal import market_name


def chance(share: float) -> str:
    """A probability in percent, with the digits that a small one needs."""
    return f"{share:.1%}" if share >= 0.0995 else f"{100 * share:.2g}%"


def estimate(one: Answer) -> Group:
    """One estimate: how likely, how sure, how soon, and on what it rests."""
    found = one.estimate
    seconds = found.median_seconds_to_eviction
    rows = [
        ("eviction", f"{chance(found.probability)} within {age(one.window / 1e6)} of {format_time(one.at)}"),
        ("95% interval", f"{chance(found.low)} to {chance(found.high)}"),
        ("at a bid of", str(one.bid)),
        ("historical", f"{chance(one.historical_share)} of all starts were crossed so far"),
        ("if evicted", "never so far" if seconds is None else f"after {age(seconds)} in the median"),
        ("worth", f"{found.observations:,.0f} independent windows of watching"),
        ("basis", found.basis),
    ]
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), value)
    return Group(market_name(one.market), table)


def calibrations(scored: Mapping[str, Calibration]) -> Group:
    """The scores of several bids, and in a line each what follows from them."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    columns = (
        "bid above price",
        "starts",
        "crossed",
        "Brier",
        "own share",
        "pooled share",
        "below own",
        "below pooled",
    )
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    for bid, one in scored.items():
        scores = (f"{score:.5f}" for score in (one.brier, one.brier_own, one.brier_pooled))
        skills = (_skill(one.against_own), _skill(one.against_pooled))
        table.add_row(bid, f"{one.starts:,}", chance(one.crossed), *scores, *skills)
    return Group(table, *(Text(f"{bid}: {_verdict(one)}") for bid, one in scored.items()))


def _skill(skill: Skill) -> str:
    return f"{skill.skill:.1%} [{skill.low:.1%}, {skill.high:.1%}]"


def _verdict(one: Calibration) -> str:
    relied = ", ".join(f"{method} at {count}" for method, count in one.methods.items() if count)
    if not one.crossed:
        return "no bid was crossed, and all predict that"
    verdict = "beats both plain shares" if one.beats_both else "does not beat both plain shares beyond chance"
    return f"{verdict}; of {one.origins} origins relied on {relied}"
