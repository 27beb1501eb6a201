"""Eviction estimates on the terminal."""

from collections.abc import Mapping

from rich.console import Group
from rich.text import Text

from bidbrain.eviction.calibration import Calibration, Skill
from pricing_data.units import age, format_time
from spotctl.lab.beta.estimates import BidEstimate
from spotctl.show.layout import RankedColumn, pairs_table, ranked_table
from spotctl.show.phrases import EVIDENCE, chance
from spotctl.show.terminal import market_name


def estimate(at_bid: BidEstimate) -> Group:
    """One estimate: its probability, interval, median time to eviction, and basis."""
    estimated = at_bid.estimate
    seconds = estimated.median_seconds_to_eviction
    rows = [
        (
            "eviction",
            f"{chance(estimated.probability)} within {age(at_bid.window / 1e6)} of {format_time(at_bid.at)}",
        ),
        ("95% interval", f"{chance(estimated.low)} to {chance(estimated.high)}"),
        ("evidence", EVIDENCE[at_bid.evidence]),
        ("price alone", f"{chance(at_bid.crossing.probability)}: the chance that the price rises above the bid"),
        ("bid", str(at_bid.bid)),
        (
            "historical",
            f"after {chance(at_bid.historical_share)} of past starts, the price rose above the bid within that time",
        ),
        ("if evicted", "no eviction so far" if seconds is None else f"after {age(seconds)} (median)"),
        ("sample size", f"{estimated.observations:,.0f} independent windows"),
        ("basis", estimated.basis),
    ]
    return Group(market_name(at_bid.market), pairs_table(rows))


def calibrations(scored: Mapping[str, Calibration], width: int) -> Group:
    """The scores of several bids as a table, and a verdict on each. A narrow terminal gets fewer columns."""
    scores = scored.values()
    columns = (
        RankedColumn("bid above price", list(scored)),
        RankedColumn("starts", [f"{calibration.starts:,}" for calibration in scores], 3),
        RankedColumn("crossed", [chance(calibration.crossed) for calibration in scores]),
        RankedColumn("Brier", [f"{calibration.brier:.5f}" for calibration in scores]),
        RankedColumn("own share", [f"{calibration.brier_own:.5f}" for calibration in scores], 1),
        RankedColumn("pooled share", [f"{calibration.brier_pooled:.5f}" for calibration in scores], 2),
        RankedColumn("vs own", [_skill(calibration.against_own) for calibration in scores]),
        RankedColumn("vs pooled", [_skill(calibration.against_pooled) for calibration in scores]),
    )
    table = ranked_table(width, columns)
    return Group(table, *(Text(f"{bid}: {_verdict(calibration)}") for bid, calibration in scored.items()))


def _skill(skill: Skill) -> str:
    return f"{skill.skill:.1%} [{skill.low:.1%}, {skill.high:.1%}]"


def _verdict(calibration: Calibration) -> str:
    relied = ", ".join(f"{method} at {count}" for method, count in calibration.methods.items() if count)
    if not calibration.crossed:
        return "no bid was crossed, as every method predicted"
    verdict = "better than" if calibration.beats_both else "not significantly better than"
    return f"{verdict} both constant shares; methods used at {calibration.origins} origins: {relied}"
