"""Properties of every plan of `auto`, checked on drawn markets and jobs.

`python -m tests.spotctl.planning.properties --count 2000 --seed 7` prints of each property how many
draws held, and the first that did not, with the command that repeats it. `--small` draws short jobs
and histories, and `--only NUMBER` and `--property NAME...` check one draw, and some properties.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from io import StringIO
from math import exp
from time import process_time
from unittest.mock import patch

from rich.console import Console

from pricing_data.units import HOUR, NANOS_PER_DOLLAR, parse_duration, usd_text
from spotctl.planning import forecast
from spotctl.planning.forecast import forecast_of, hours_allowed, merits_of
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import JobPlans
from spotctl.show.phrases import hours_text
from spotctl.show.plans.plan_answers import answers
from spotctl.show.plans.plan_tables import plan_view
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.drawn_jobs import LISTED, PLACES, ZONES, Case, case_of, planned
from tests.spotctl.planning.worlds import TYPES

SAME = 0.02
"""Costs that differ by less count as equal: where a training may have a reliable machine, a plan
gives it up only for more."""
_CENT = 0.01
_LUCK = 3.0
"""How many standard deviations machines may be faster than their throughput says."""
_ROUNDING = 1e-6


def plan_of(case: Case) -> JobPlan | None:
    found = planned(case)
    return found if isinstance(found, JobPlan) else None


def costs_no_more(wider: Case, narrower: Case) -> bool:
    """Whether the narrower case has a plan. That of the wider case costs no more, with the value of
    its time, unless it is likelier to keep its limits."""
    before, after = plan_of(narrower), planned(wider)
    if before is None:
        return False

    assert isinstance(after, JobPlan), f"planned at {said(before)}, then refused: {after}"
    (broken, usd), (then_broken, then_usd) = merits_of(before)[:2], merits_of(after)[:2]
    costs_more = then_usd > usd * (1 + SAME) + _CENT
    assert not costs_more or then_broken < broken, f"{said(before)}, then {said(after)}"
    return True


def said(plan: JobPlan) -> str:
    """A plan in a few words."""
    expected = forecast_of(plan)
    machines = ", ".join(
        f"{choice.rent.machines} x {choice.rent.offer.market.instance_type}"
        f"{'' if choice.rent.bid else ' on demand'}"
        for choice in plan.cost.choice
    )
    broken = merits_of(plan)[0]
    limits = f", limits broken {broken:.2f}" if broken else ""
    return (
        f"{usd_text(expected.usd.median)} in {expected.hours.median:.1f} h by "
        f"{plan.decision.strategy.name} ({machines}{limits})"
    )


def another_type(case: Case) -> bool:
    """Adding a type, after those whose hours may be meant, makes no plan more expensive."""
    others = [name for name in TYPES if name not in case.types]
    return bool(others) and costs_no_more(replace(case, types=(*case.types, others[0])), case)


def another_zone(case: Case) -> bool:
    """Nor does adding a zone."""
    others = [zone for zone in ZONES if zone not in case.zones]
    return bool(others) and costs_no_more(replace(case, zones=(*case.zones, others[0])), case)


def more_time(case: Case) -> bool:
    """Nor does half as much time again."""
    if case.deadline is None:
        return False
    return costs_no_more(replace(case, deadline=case.deadline + max(case.deadline // 2, 1)), case)


def more_money(case: Case) -> bool:
    """Nor does half as much money again."""
    if case.budget is None:
        return False
    return costs_no_more(replace(case, budget=case.budget + max(case.budget // 2, 1)), case)


def lower_price(case: Case) -> bool:
    """Nor do present prices that are a third lower, after the same history."""
    return costs_no_more(replace(case, last=2 / 3), case)


def named_strategy(case: Case) -> bool:
    """No strategy that the job may name is cheaper than `auto` within the same limits."""
    applied = False
    for name in case.strategies:
        try:
            applied |= costs_no_more(case, replace(case, strategy=name))
        except AssertionError as error:
            raise AssertionError(f"strategy {name}: {error}") from None
    return applied


def physical(case: Case) -> bool:
    """No percentile is below the least time or cost of the work, or beyond what a guard leaves."""
    plan = plan_of(case)
    if plan is None:
        return False

    spreads = forecast_of(plan)
    fastest = case.machines * max(TYPES[name] for name in case.types)
    spread = max((rate.spread for rate in plan.fleet.rates.values()), default=0.0)
    least_hours = case.amount / fastest * exp(-_LUCK * spread)
    fewest, most = spreads.hours.quantile(0.0), spreads.hours.quantile(1.0)
    assert fewest >= least_hours * (1 - _ROUNDING), (
        f"{fewest:.3f} h, for {least_hours:.3f} h of work"
    )

    # Of spot machines, the hour in which each is evicted is free, or the first one.
    listed = {name: LISTED[name] / NANOS_PER_DOLLAR for name in case.types}
    held = (plan.decider.reliable is not None) * max(listed.values())
    usd_per_vcpu = min(listed[name] / TYPES[name] for name in case.types)
    least_usd = 0.0 if spreads.on_spot else case.amount * usd_per_vcpu * exp(-_LUCK * spread)
    least, highest = spreads.usd.quantile(0.0), spreads.usd.quantile(1.0)
    assert least > 0
    assert least >= least_usd * (1 - _ROUNDING), f"{usd_text(least)}, for {usd_text(least_usd)}"

    # No job costs more than the list for as many machines as the job may have, and begun hours.
    rate = case.machines * max(listed.values()) + held
    hours = most + (2 if case.year == 2016 else 0.1)
    assert highest <= rate * hours * (1 + _ROUNDING), f"{usd_text(highest)} in {most:.1f} h"

    left = hours_allowed(plan)
    guarded = plan.job.deadline is not None and plan.cost.fallback.hours <= left
    if guarded and not spread:
        assert most <= left + 0.1, f"up to {most:.1f} h, with a deadline in {left:.1f} h"
    return True


_CURE = re.compile(
    r"`strategy: (?P<strategy>\w+)`|(?P<time>[\d.]+[dhms]) more time|a budget of \$(?P<usd>[\d,.]+)"
)


def cures(case: Case) -> bool:
    """With each cure that a refusal names, the job is planned."""
    refusal = planned(case, cures=True)
    if isinstance(refusal, JobPlan):
        return False

    _, _, offered = str(refusal).partition("it would be accepted with ")
    named = list(_CURE.finditer(offered))
    for cure in named:
        changed = case
        if (strategy := cure["strategy"]) is not None:
            changed = replace(case, strategy=strategy)
        elif (time := cure["time"]) is not None:
            assert case.deadline is not None
            changed = replace(case, deadline=case.deadline + parse_duration(time) / HOUR)
        else:
            changed = replace(case, budget=round(float(cure["usd"].replace(",", "")) * 100))
        after = planned(changed)
        assert isinstance(after, JobPlan), f"{cure[0]}: {after}; refused at first: {refusal}"
    return bool(named)


def has_cure(case: Case) -> bool:
    """Each refusal of a deadline or a budget names what would do."""
    refusal = planned(case, cures=True)
    if isinstance(refusal, JobPlan) or (case.deadline is None and case.budget is None):
        return False
    assert "it would be accepted with " in str(refusal), refusal
    return True


def figures(case: Case) -> bool:
    """The summary, the explanation and the JSON state the same figures."""
    plan = plan_of(case)
    if plan is None:
        return False

    lines = dict(summary(plan))
    out = StringIO()
    Console(file=out, width=500).print(plan_view(plan, 500, explain=True))
    explained = " ".join(out.getvalue().split())
    for name, line in lines.items():
        assert f"{name} {line}" in explained, f"not explained: {name}: {line}"

    (row,) = answers(JobPlans([plan], at=plan.at))
    expected = row["expected"]
    usd, low, high = (expected[key] for key in ("cost_usd", "cost_p10_usd", "cost_p90_usd"))
    assert usd_text(low) in lines["cost"], (lines["cost"], low)
    guess = lines["cost"].startswith("between")
    assert usd_text(high) in lines["cost"] or guess, (lines["cost"], high)
    assert usd_text(usd) in lines["cost"] or guess, (lines["cost"], usd)
    assert f"total {usd:.4f}" in explained
    total = sum(term["cost_usd"] for term in expected["terms"])
    assert abs(total - usd) <= _ROUNDING * max(usd, 1.0), f"terms add up to {total}, not {usd}"
    assert lines["time"].startswith(hours_text(expected["hours"])), lines["time"]
    assert lines["on demand"].startswith(usd_text(row["on_demand_usd"])), lines["on demand"]
    percentiles = expected["cost_percentiles_usd"]
    assert percentiles == sorted(percentiles)
    assert (percentiles[2], percentiles[10], percentiles[18]) == (low, usd, high)
    return True


PROPERTIES: Mapping[str, Callable[[Case], bool]] = {
    check.__name__.replace("_", "-"): check
    for check in (
        another_type,
        another_zone,
        more_time,
        more_money,
        lower_price,
        named_strategy,
        physical,
        cures,
        has_cure,
        figures,
    )
}


@contextmanager
def coarse_plays() -> Iterator[None]:
    """Forecasts with about a tenth of the plays that a plan has, for many plans in little time."""
    # Plans are kept with their forecasts.
    planned.cache_clear()
    try:
        with patch.multiple(forecast, _DECISIONS=600, _MIXED=300, _ROAMING=100):
            yield
    finally:
        planned.cache_clear()


def described(case: Case) -> str:
    """A case in a line, with the prices of the markets that it may use."""
    used = [
        f"{name} in {zone}: {prices.shape} at {prices.level:g} of on demand ({prices.luck})"
        for (name, zone), prices in zip(PLACES, case.prices, strict=True)
        if name in case.types and zone in case.zones
    ]
    values = [
        f"{each.name}={getattr(case, each.name)!r}"
        for each in fields(case)
        if each.name != "prices" and getattr(case, each.name) != each.default
    ]
    return f"{', '.join(values)}; {'; '.join(used)}"


def main() -> None:
    """Reads what to check, and checks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=82)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--property", nargs="+", choices=PROPERTIES, default=list(PROPERTIES))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--show", type=int, default=3, help="counterexamples of each property")
    parser.add_argument(
        "--coarse",
        action="store_true",
        help="a tenth of the usual plays; what does not hold then is checked with all",
    )
    checked(parser.parse_args())


def checked(chosen: argparse.Namespace) -> None:
    """Prints how many draws held, and the first counterexamples of each property; of the draws
    that are done, if it is interrupted."""
    numbers = range(chosen.first, chosen.first + chosen.count)
    if chosen.only is not None:
        numbers = range(chosen.only, chosen.only + 1)
    held = dict.fromkeys(chosen.property, 0)
    wrong: dict[str, list[int]] = {name: [] for name in held}
    small = " --small" if chosen.small else ""
    again = f"python -m tests.spotctl.planning.properties --seed {chosen.seed}{small}"
    done = 0
    with suppress(KeyboardInterrupt):
        for number in numbers:
            case = case_of(chosen.seed, number, small=chosen.small)
            failed = dict.fromkeys(held, "")
            for plays in (coarse_plays, nullcontext) if chosen.coarse else (nullcontext,):
                with plays():
                    names, failed = failed, {}
                    for name in names:
                        try:
                            held[name] += PROPERTIES[name](case)
                        except AssertionError as error:
                            failed[name] = str(error)

            for name, why in failed.items():
                wrong[name].append(number)
                if len(wrong[name]) <= chosen.show:
                    print(f"{name} does not hold: {why}\n  {described(case)}")
                    print(f"  {again} --only {number} --property {name}", flush=True)
            done += 1

    for name, count in held.items():
        applied = count + len(wrong[name])
        print(
            f"{name}: {count} of {applied} draws held{''.join(f', not {n}' for n in wrong[name])}"
        )
    print(f"{done} draws by seed {chosen.seed}, {process_time():.0f} s of processor time")


if __name__ == "__main__":
    main()
