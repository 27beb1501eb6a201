"""A plan on the terminal."""

from collections.abc import Callable, Iterator, Sequence
from math import isfinite

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.eviction.estimate import Estimate
from bidbrain.strategies.base import Rent
from pricing_data.known_clouds import markets_of
from pricing_data.market import Market
from pricing_data.units import (
    HOUR,
    MINUTE,
    NANOS_PER_DOLLAR,
    bid_usd,
    counted,
    format_time,
    to_usd,
    usd_text,
)
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import AUTO
from spotctl.home.cloud import cloud_of
from spotctl.planning.checkpoint_interval import CheckpointInterval
from spotctl.planning.forecasting import finish_by, forecast_of
from spotctl.planning.pace import PacePoint
from spotctl.planning.turns import QuotaPart
from spotctl.planning.values import Choice, JobPlan
from spotctl.planning.work import SPECIFIED
from spotctl.show.layout import RankedColumn, TableCell, pairs_table, within
from spotctl.show.phrases import EVIDENCE, bids_text, chance, hours_text, moment
from spotctl.show.plans.zones import zones_view
from spotctl.show.terminal import dollars, market_name

_WIDE = 110
"""Narrower terminals get the columns that matter most."""
_MOST_REJECTED = 3
_MOST_REJECTED_EXPLAINED = 20
_HIGHEST_STATED = 0.98


def plan_view(plan: JobPlan, width: int, *, explain: bool, pace: Sequence[PacePoint] = ()) -> RenderableType:
    figures = pairs_table([*_lines(plan), *(("pace", _pace(point)) for point in pace)])
    parts: list[RenderableType] = [Text(plan.job.spec.name, style="bold"), _choices(plan, width), figures]
    if explain:
        parts += [Text(), _betas(plan), Text(), _terms(plan), *_one_type(plan), *_shares(plan)]
        if plan.first.outlooks:
            parts += [Text(), zones_view(plan)]
    if plan.cost.rejected:
        parts += [Text(), _rejected(plan, _MOST_REJECTED_EXPLAINED if explain else _MOST_REJECTED, width)]
    return Group(*parts, Text())


def _choices(plan: JobPlan, width: int) -> Table:
    wide = width >= _WIDE
    # A narrow terminal has no room for the label in every row.
    marked = not wide and all(choice.rent.offer.market.is_synthetic for choice in plan.choice)
    name: Callable[[Market], Text | str] = str if marked else market_name
    market = "market (synthetic)" if marked else "market"
    eviction = ["eviction/h", "95%"] if wide else ["eviction/h"]
    unit = plan.unit if wide else plan.unit.replace("hour", "h")
    headings = ["machines", market, *(["price"] if wide else []), "bid", *eviction, f"$/{unit}"]
    rows: list[list[TableCell]] = [
        [f"{choice.rent.machines:,}", name(choice.rent.offer.market), *_cells(choice, wide)] for choice in plan.choice
    ]
    reliable = plan.decider.reliable
    if reliable is not None:
        price = dollars(reliable.offer.on_demand)
        cells = [price, "on demand", "", "", "reliable"] if wide else ["on demand", "", "reliable"]
        rows.append([f"{reliable.machines:,}", name(reliable.offer.market), *cells])
    # Where a cloud takes no bids, the column says little.
    without_bids = not any(markets_of(choice.rent.offer.market.cloud).takes_bids for choice in plan.choice)
    ranked = [
        RankedColumn(heading, column, rank=int(heading == "bid" and without_bids))
        for heading, column in zip(headings, map(list, zip(*rows, strict=True)), strict=True)
    ]
    kept = within(width, ranked)
    table = _table(*(column.heading for column in kept))
    for row in zip(*(column.cells for column in kept), strict=True):
        table.add_row(*row)
    return table


def _cells(choice: Choice, wide: bool) -> Iterator[str]:
    if wide:
        yield dollars(choice.price)
    yield _bid(choice.rent)
    yield chance(choice.beta.probability)
    if wide:
        yield _interval(choice.beta)
    yield f"{choice.usd_per_work:.4g}" if isfinite(choice.usd_per_work) else "no work"


def _bid(rent: Rent) -> str:
    """The bid, where the cloud takes bids."""
    if rent.bid is None:
        return "on demand"
    return bid_usd(rent.bid) if markets_of(rent.offer.market.cloud).takes_bids else "spot price"


def _interval(beta: Estimate) -> str:
    return f"{chance(beta.low)} to {chance(beta.high)}"


def _pace(point: PacePoint) -> str:
    """`12% less for 3% more time with value_of_time: 0.2 USD/h`."""
    cost, time = (f"{abs(change):.0%} {'less' if change < 0 else 'more'}" for change in (point.usd, point.hours))
    return f"{cost} for {time} time with value_of_time: {to_usd(point.value_of_time):g} USD/h"


def _list_date(plan: JobPlan, rent: Rent) -> str:
    """The date of a real market's list price."""
    market = rent.offer.market
    dates = [price.as_of for price in plan.price_dates if not price.spot and price.market == market]
    return f" by the list of {format_time(dates[0])[:10]}" if dates and not market.is_synthetic else ""


def _lines(plan: JobPlan) -> Iterator[tuple[str, str]]:
    other = plan.cost.on_demand
    yield "expected", _expected(plan)
    yield "basis", forecast_of(plan).basis
    if any(choice.evidence == "prior" for choice in plan.choice):
        yield "evictions", EVIDENCE["prior"]
    machines = f"{other.rent.machines:,} x {other.rent.offer.market.instance_type}"
    assumed = plan.work.assumed
    ratio = (forecast_of(plan).usd_per_hour if assumed else forecast_of(plan).usd).median / other.usd
    comparison = f"{1 - ratio:.0%} saved" if ratio <= 1 else f"the plan is {ratio - 1:.0%} more expensive"
    span = "per hour" if assumed else f"in {hours_text(other.hours)}"
    listed = f"{usd_text(other.usd)} {span} on {machines}{_list_date(plan, other.rent)}"
    yield "on demand", f"{listed}: {comparison}"
    if bids := bids_text(
        (choice.rent.offer.market.cloud, choice.rent.bid, choice.rent.offer.on_demand) for choice in plan.choice
    ):
        yield "bids", bids
    yield "work", _work(plan)
    yield "speed", _sources(plan)
    if (turns := _turns(plan)) is not None:
        yield "turns", turns
    if plan.job.budget_usd is not None:
        yield "budget", _budget(plan, plan.job.budget_usd)
    if plan.job.deadline is not None:
        yield "deadline", _deadline(plan, plan.job.deadline)
    if plan.first.checkpoints is not None:
        yield "checkpoints", _checkpoints(plan.first.checkpoints)
    elif isinstance(plan.job.spec.program, Command) and any(choice.rent.bid is not None for choice in plan.choice):
        yield "checkpoints", _without_checkpoints(plan)
    yield "policy", plan.allocated.share.policy
    if plan.first.mixture is not None:
        yield "machines", plan.first.mixture.words()
    automatic = " (automatic)" if plan.job.spec.strategy == AUTO else ""
    yield "strategy", f"{plan.built.strategy.name}{automatic}: {plan.built.strategy.reason}"
    yield "decision", plan.worded(plan.first.decision.reason)


def _work(plan: JobPlan) -> str:
    work, job = plan.work, plan.job
    if work.hours is None or work.assumed:
        return work.source
    span = f"{work.hours * 60:.3g} min" if work.hours < 1 else f"{work.hours:.3g} h"
    if job.hours is None:
        return f"{span} of compute, from `hours` in the job file"
    return f"{span} of compute, {'from --hours' if job.hours_from == SPECIFIED else job.hours_from}"


def _sources(plan: JobPlan) -> str:
    if not all(rate.in_units for rate in plan.built.rates.values()):
        return "estimated from vCPUs (no measured throughput yet)"
    return ", ".join(dict.fromkeys(rate.source for rate in plan.built.rates.values()))


def _checkpoints(interval: CheckpointInterval) -> str:
    every, cost = (f"{micros / MINUTE:.3g} minutes" for micros in (interval.every, interval.cost))
    life = f"an eviction every {hours_text(interval.life / HOUR)}" if isfinite(interval.life) else "no evictions"
    if interval.is_fixed:
        return f"every {every}, set in the job file ({life})"
    return f"every {every}, assuming {life} and {cost} per checkpoint; adjusted once measured"


def _without_checkpoints(plan: JobPlan) -> str:
    """The cost of an eviction to a command that saves nothing."""
    interval, hours = plan.first.interval, plan.work.hours
    often = f", about every {hours_text(interval.life / HOUR)}," if interval and isfinite(interval.life) else ""
    lost = ""
    if hours is not None and not plan.work.assumed:
        per_hour = sum(choice.price * choice.rent.machines for choice in plan.choice)
        lost = f" and loses up to {usd_text(per_hour / NANOS_PER_DOLLAR * hours)} of work"
    return f"none: each eviction{often} starts the command from nothing{lost}; add checkpoint: {{path: ...}}"


def _expected(plan: JobPlan) -> str:
    """Cost and duration with P10 to P90."""
    forecast = forecast_of(plan)
    if plan.work.assumed:
        low, high = forecast.usd_per_hour.likely
        return f"{usd_text(forecast.usd_per_hour.median)} per hour ({usd_text(low)} to {usd_text(high)})"
    low, high = forecast.usd.likely
    cost = f"{usd_text(forecast.usd.median)} ({usd_text(low)} to {usd_text(high)})"
    return f"{cost} in {_hours_range(plan)}, finished by {moment(finish_by(plan))}"


def _hours_range(plan: JobPlan) -> str:
    expected, (low, high) = hours_text(forecast_of(plan).hours.median), map(hours_text, forecast_of(plan).hours.likely)
    if low == high == expected:
        return expected
    number, unit = low.split()
    return f"{expected} ({number if high.endswith(unit) else low} to {high})"


def _budget(plan: JobPlan, budget: float) -> str:
    if plan.work.assumed:
        return f"{usd_text(budget)}, enough for {hours_text(budget / forecast_of(plan).usd_per_hour.median)}"
    return f"{usd_text(budget)}: {_probability(forecast_of(plan).budget_kept(budget))} likely to be enough"


def _deadline(plan: JobPlan, deadline: int) -> str:
    if plan.work.assumed:
        return f"{moment(deadline)}; cannot be checked, because the job length is unknown (set `hours:`)"
    met = forecast_of(plan).deadline_met((deadline - plan.at) / HOUR)
    slack = (deadline - finish_by(plan)) / HOUR
    spare = f", {hours_text(slack)} to spare" if slack >= 0 else "; on-demand machines take over if time runs short"
    return f"{moment(deadline)}: {_probability(met)} likely to be met{spare}"


def _probability(share: float) -> str:
    """Past windows are few: no probability is stated as certain."""
    if share > _HIGHEST_STATED:
        return f"over {_HIGHEST_STATED:.0%}"
    return f"under {1 - _HIGHEST_STATED:.0%}" if share < 1 - _HIGHEST_STATED else f"{share:.0%}"


def _betas(plan: JobPlan) -> Group:
    """The eviction estimate behind each bid, and its basis."""
    lines = (
        f"{choice.rent.offer.market}: {chance(choice.beta.probability)} per hour, 95% interval"
        f" {_interval(choice.beta)}; {choice.beta.basis}"
        for choice in plan.choice
    )
    clouds = dict.fromkeys(choice.rent.offer.market.cloud for choice in plan.choice if choice.rent.bid is not None)
    notes = (remark for cloud in clouds if (remark := cloud_of(cloud).words.spot_request))
    return Group(Text("eviction", style="bold"), *map(Text, lines), *map(Text, notes))


def _one_type(plan: JobPlan) -> Iterator[RenderableType]:
    """Why no mixture of machine types was considered, where that is so."""
    if isinstance(plan.job.spec.program, Command):
        why = "all nodes of a command are of one type at a time, and its length is in hours on that type."
    elif plan.work.hours is not None and not plan.work.assumed:
        why = (
            "the length of the job is in hours on one type. To mix types, side by side or one after the other, set"
            " stop: {clocks: ...} and throughputs."
        )
    else:
        return
    yield Text()
    yield Text("mixtures of machine types", style="bold")
    yield Text(f"none: {why}")


def _shares(plan: JobPlan) -> Iterator[RenderableType]:
    """The quotas that limit the job, and why it gets its part of each."""
    if not plan.allocated.quotas:
        return
    yield Text()
    yield Text("quotas", style="bold")
    for share in plan.allocated.quotas:
        whole = f"{share.quota.name}: {share.part.amount} of {share.quota.amount} {share.quota.unit}"
        if len(share.parts) == 1:
            yield Text(f"{whole}; no other job is planned")
        elif share.is_enough:
            yield Text(f"{whole}; enough for all {len(share.parts)} jobs")
        else:
            yield Text(f"{whole}; {', '.join(part.words(plan.launched) for part in share.parts)}")


def _turns(plan: JobPlan) -> str | None:
    """Who uses the quotas when, if they do not hold all jobs at the same time."""
    waited = [share for share in plan.allocated.quotas if not share.is_enough]
    if not any(part.turn.begin for share in waited for part in share.parts):
        return None
    parts = waited[0].parts
    first = " and ".join(_turn(part, plan.launched) for part in parts if not part.turn.begin)
    later = "".join(f", then {_turn(part, plan.launched)}" for part in parts if part.turn.begin)
    return f"{first}{later} ({', '.join(str(share.quota) for share in waited)})"


def _turn(part: QuotaPart, at: int) -> str:
    """The name of a job, and the end of its turn."""
    return f"{part.job} until {part.turn.clock(at)}" if isfinite(part.turn.end) else part.job


def _terms(plan: JobPlan) -> Group:
    """The first hour by Eq. 4.1-4.4 of the paper, and the expected bill of the whole job by market."""
    table = _table("expected bill", "machines", "$")
    for term in forecast_of(plan).terms:
        table.add_row(str(term.market), f"up to {term.machines:,}", f"{term.usd:.4f}")
    table.add_row("total", "", f"{forecast_of(plan).usd.median:.4f}", style="bold")
    later = plan.cost.estimate.later.usd_per_work
    return Group(
        Text("first hour", style="bold"),
        Text(plan.worded(plan.cost.estimate.first.explain())),
        Text(f"each later hour: {f'${later:.4g} per {plan.unit}' if isfinite(later) else 'no work is expected'}"),
        *(() if plan.work.assumed else (Text(), table)),
    )


def _rejected(plan: JobPlan, most: int, width: int) -> RenderableType:
    named = plan.cost.rejected[:most]
    more = len(plan.cost.rejected) - len(named) + plan.cost.unnamed
    if width >= _WIDE:
        table = _table("rejected", "reason", right=False)
        for rejection in named:
            table.add_row(market_name(rejection.market), Text(plan.worded(rejection.why)))
        return Group(table, *_more(more))
    lines = (_rejected_line(rejection.market, plan.worded(rejection.why)) for rejection in named)
    return Group(Text("rejected", style="bold"), *lines, *_more(more))


def _rejected_line(market: Market, why: str) -> Text:
    return market_name(market).append(f": {why}", style="default")


def _more(count: int) -> list[Text]:
    return [Text(f"and {counted(count, 'more market')} (--explain and --json list more)")] if count else []


def _table(*columns: str, right: bool = True) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(
            name, justify="right" if right and not name.startswith(("market", "expected")) else "left", overflow="fold"
        )
    return table
