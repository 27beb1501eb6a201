"""Eviction estimates on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from pricing_data.units import age, format_time
from spotctl.show.layout import RankedColumn, pairs_table, ranked_table
from spotctl.show.phrases import EVIDENCE, chance
from spotctl.show.terminal import market_name

if TYPE_CHECKING:
    from bidbrain.eviction.calibration import Calibration, Skill
    from spotctl.lab.beta.estimates import Answer


def estimate(one: Answer) -> Group:
    """One estimate: its probability, interval, median time to eviction, and basis."""
    estimated = one.estimate
    seconds = estimated.median_seconds_to_eviction
    rows = [
        ("eviction", f"{chance(estimated.probability)} within {age(one.window / 1e6)} of {format_time(one.at)}"),
        ("95% interval", f"{chance(estimated.low)} to {chance(estimated.high)}"),
        ("evidence", EVIDENCE[one.evidence]),
        ("price alone", f"{chance(one.crossing.probability)}: the chance that the price rises above the bid"),
        ("bid", str(one.bid)),
        (
            "historical",
            f"after {chance(one.historical_share)} of past starts, the price rose above the bid within that time",
        ),
        ("if evicted", "no eviction so far" if seconds is None else f"after {age(seconds)} (median)"),
        ("sample size", f"{estimated.observations:,.0f} independent windows"),
        ("basis", estimated.basis),
    ]
    return Group(market_name(one.market), pairs_table(rows))


def calibrations(scored: Mapping[str, Calibration], width: int) -> Group:
    """The scores of several bids as a table, and a verdict on each. A narrow terminal gets fewer columns."""
    found = scored.values()
    columns = (
        RankedColumn("bid above price", list(scored)),
        RankedColumn("starts", [f"{one.starts:,}" for one in found], 3),
        RankedColumn("crossed", [chance(one.crossed) for one in found]),
        RankedColumn("Brier", [f"{one.brier:.5f}" for one in found]),
        RankedColumn("own share", [f"{one.brier_own:.5f}" for one in found], 1),
        RankedColumn("pooled share", [f"{one.brier_pooled:.5f}" for one in found], 2),
        RankedColumn("vs own", [_skill(one.against_own) for one in found]),
        RankedColumn("vs pooled", [_skill(one.against_pooled) for one in found]),
    )
    table = ranked_table(width, columns)
    return Group(table, *(Text(f"{bid}: {_verdict(one)}") for bid, one in scored.items()))


def _skill(skill: Skill) -> str:
    return f"{skill.skill:.1%} [{skill.low:.1%}, {skill.high:.1%}]"


def _verdict(one: Calibration) -> str:
    relied = ", ".join(f"{method} at {count}" for method, count in one.methods.items() if count)
    if not one.crossed:
        return "no bid was crossed, as every method predicted"
    verdict = "better than" if one.beats_both else "not significantly better than"
    return f"{verdict} both constant shares; methods used at {one.origins} origins: {relied}"
