"""A plan on the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from operator import itemgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.decision.mixture_strategy import phases_text
from bidbrain.strategies.base import Rent
from pricing_data.known_clouds import markets_of
from pricing_data.market import Market
from pricing_data.units import (
    HOUR,
    SECOND,
    bid_usd,
    counted,
    format_usd,
    to_usd,
    usd_text,
)
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import AUTO
from spotctl.home.cloud import cloud_of
from spotctl.planning.explain import (
    TrainingMode,
    change_of_pace,
    expected_of,
    launch_moment,
    unnamed_markets,
)
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import SPECIFIED, CheckpointInterval, JobPlan
from spotctl.run.start.launch_plans import JobPlans
from spotctl.show.columns import Column, fitting
from spotctl.show.layout import TableCell, pairs_table
from spotctl.show.phrases import bids_text, chance, hours_text, slice_text, span_words
from spotctl.show.plans.summary import restart_words, summary
from spotctl.show.terminal import dollars, market_name

ALONE = JobPlans()
"""Nothing that explains a plan."""

_WIDE = 110
"""Narrower terminals get the columns that matter most."""
_MAX_REJECTED = 20


def plan_view(
    plan: JobPlan,
    width: int,
    *,
    explain: bool,
    planned: JobPlans = ALONE,
) -> RenderableType:
    """A plan; `planned` has what explains the plans that were made together."""
    heading, restart = Text(plan.job.spec.name, style="bold"), restart_words(plan)
    if restart:
        # What evictions cost a job that saves nothing.
        heading.append(f": no checkpoint, so {restart}")

    parts: list[RenderableType] = [heading, pairs_table(summary(plan))]
    if not explain:
        parts += [Text("spotctl plan --explain shows why", style="dim"), Text()]
        return Group(*parts)

    parts += [Text(), _choices(plan, width), pairs_table(_reasons(plan, planned.pace))]

    # The eviction estimate behind each bid, and its basis.
    evictions, clouds = list[Text](), list[str]()
    for choice in plan.cost.choice:
        market, beta = choice.rent.offer.market, choice.beta
        low, high = chance(beta.low), chance(beta.high)
        estimate = f"{chance(beta.probability)} per hour, 95% interval {low} to {high}"
        evictions.append(Text(f"{market}: {estimate}; {beta.basis}"))
        if choice.rent.bid is not None:
            clouds.append(market.cloud)

    parts += [Text(), Text("eviction", style="bold"), *evictions]
    for cloud in dict.fromkeys(clouds):
        remark = cloud_of(cloud).words.spot_request
        if remark:
            parts.append(Text(remark))

    parts += [Text(), _terms(plan)]
    parts += [*_ways(planned.modes), *_one_type(plan), *_shares(plan, planned.mean_ends)]
    if plan.decision.outlooks:
        parts += [Text(), zones_view(plan)]
    if plan.rejected:
        parts += [Text(), _rejected(plan, width)]
    unfit = [f"{cloud}: {hosts} with {why}" for (cloud, why), hosts in planned.left_out.items()]
    title = [Text(), Text("offers that the last fetch left out", style="bold")]
    parts += [*title, *map(Text, unfit)] if unfit else []
    return Group(*parts, Text())


def _choices(plan: JobPlan, width: int) -> Table:
    """The machines that would be rented now, and the reliable ones."""
    wide = width >= _WIDE
    # A narrow terminal has no room for the label in every row.
    marked = not wide and all(choice.rent.offer.market.is_synthetic for choice in plan.cost.choice)
    name: Callable[[Market], Text | str] = str if marked else market_name
    market = "market (synthetic)" if marked else "market"
    unit = plan.demand.unit if wide else plan.demand.unit.replace("hour", "h")
    headings = ["machines", market, "price", "bid", "eviction/h", "95%", f"$/{unit}"]
    rows, takes_bids = list[list[TableCell]](), False
    for choice in plan.cost.choice:
        offer, beta = choice.rent.offer, choice.beta
        per_work = f"{choice.usd_per_work:.4g}" if isfinite(choice.usd_per_work) else "no work"
        place = [f"{choice.rent.machines:,}", name(offer.market)]
        price = [dollars(choice.price), _bid(choice.rent)]
        interval = f"{chance(beta.low)} to {chance(beta.high)}"
        rows.append([*place, *price, chance(beta.probability), interval, per_work])
        takes_bids |= markets_of(offer.market.cloud).takes_bids

    reliable = plan.decider.reliable
    if reliable is not None:
        offer = reliable.offer
        cells = [dollars(offer.on_demand), "on demand", "", "", "reliable"]
        rows.append([f"{reliable.machines:,}", name(offer.market), *cells])

    columns = list[Column[list[TableCell]]]()
    for i, heading in enumerate(headings):
        if wide or heading not in {"price", "95%"}:
            # Where a cloud takes no bids, the column says little.
            rank = int(heading == "bid" and not takes_bids)
            columns.append(Column(heading, heading=heading, cell=itemgetter(i), rank=rank))

    shown = fitting(columns, rows, width)
    table = _table(*(column.key for column, _ in shown))
    for row in zip(*(cells for _, cells in shown), strict=True):
        table.add_row(*row)
    return table


def _bid(rent: Rent) -> str:
    """The bid, where the cloud takes bids."""
    if rent.offer.market.reservation:
        return "reserved"
    if rent.bid is None:
        return "on demand"
    if markets_of(rent.offer.market.cloud).takes_bids:
        return bid_usd(rent.bid)
    return "spot price"


def _reasons(plan: JobPlan, pace: Sequence[JobPlan]) -> Iterator[tuple[str, str]]:
    """The grounds of the plan; `pace` are the next points on the frontier of cost and time."""
    yield "basis", forecast_of(plan).basis
    bidding = list[tuple[str, int | None, int]]()
    for choice in plan.cost.choice:
        offer = choice.rent.offer
        bidding.append((offer.market.cloud, choice.rent.bid, offer.on_demand))
    bids = bids_text(bidding)
    if bids:
        yield "bids", bids

    yield "work", _work(plan)
    rates = plan.fleet.rates.values()
    size = plan.demand.unit.removesuffix("-hour")
    speed = f"estimated from {size}s (no measured throughput yet)"
    if all(rate.in_units for rate in rates):
        speed = ", ".join(dict.fromkeys(rate.source for rate in rates))
    yield "speed", speed
    if plan.decision.checkpoints is not None:
        yield "checkpoints", _saves(plan, plan.decision.checkpoints)

    if plan.reliable_reason:
        yield "reliable", plan.reliable_reason
    yield "policy", plan.share.policy
    if plan.decision.mixture is not None:
        yield "mixture", phases_text(plan.decision.mixture, plan.decision.types)
    automatic = " (automatic)" if plan.job.spec.strategy == AUTO else ""
    strategy = plan.decision.strategy
    yield "strategy", f"{strategy.name}{automatic}: {strategy.reason}"
    yield "decision", plan.demand.worded(plan.decision.reason)

    for other in pace:
        changes = list[str]()
        for change in change_of_pace(plan, other):
            word = "less" if change < 0 else "more"
            changes.append(f"{abs(change):.0%} {word}")
        cost, time = changes
        value = other.demand.value_of_time_usd
        yield "pace", f"{cost} for {time} time with value_of_time: {value:g} USD/h"


def _saves(plan: JobPlan, interval: CheckpointInterval) -> str:
    """How often checkpoints are saved, at which rate of evictions, how long each takes, and how
    that is known."""
    life = "no evictions"
    if isfinite(interval.life):
        life = f"an eviction every {hours_text(interval.life / HOUR)}"

    program, source = plan.job.spec.program, "assumed until one is measured"
    saved = program.checkpoint if isinstance(program, Command) else None
    if plan.job.save_seconds is not None:
        source = "as in earlier runs"
    elif saved is not None and saved.takes is not None:
        source = "by the job file or its rehearsal"
    elif plan.demand.save_time is not None:
        source = "by its size"

    seconds = interval.cost / SECOND
    given = ", set in the job file" if interval.is_fixed else ""
    every = f"every {span_words(interval.every)}{given}, with {life}"
    return f"{every}; each takes {seconds:.3g} s ({source})"


def _work(plan: JobPlan) -> str:
    work, job = plan.demand.work, plan.job
    if work.hours is None or work.assumed:
        return work.source
    span = f"{work.hours * 60:.3g} min" if work.hours < 1 else f"{work.hours:.3g} h"
    if job.hours is None:
        return f"{span} of compute, from `hours` in the job file"
    return f"{span} of compute, {'from --hours' if job.hours_from == SPECIFIED else job.hours_from}"


def _one_type(plan: JobPlan) -> Iterator[RenderableType]:
    """Why no mixture of machine types was considered, where that is so."""
    if isinstance(plan.job.spec.program, Command):
        why = (
            "all nodes of a command are of one type at a time, and its length is in hours on that "
            "type."
        )
    elif plan.demand.work.hours is not None and not plan.demand.work.assumed:
        why = (
            "the length of the job is in hours on one type. To mix types, side by side or one "
            "after the other, set stop: {clocks: ...} and throughputs."
        )
    else:
        return

    yield Text()
    yield Text("mixtures of machine types", style="bold")
    yield Text(f"none: {why}")


def _ways(ways: Sequence[TrainingMode]) -> Iterator[RenderableType]:
    """The training as a script, and as a trainer with and without a reliable machine."""
    if not ways:
        return

    table = _table("expected, by way", "cost", "P10 to P90", "time", "")
    for way in ways:
        expected = expected_of(way)
        cells = ["no plan", "", ""]
        if expected is not None:
            usd, low, high, hours = expected
            cells = [usd_text(usd), f"{usd_text(low)} to {usd_text(high)}", hours_text(hours)]
        table.add_row(way.name, *cells, "this plan" if way.is_chosen else "")

    yield from (
        Text(),
        table,
        Text("each on the same kinds of machines, which do the same work per hour", style="dim"),
    )


def _shares(plan: JobPlan, mean_ends: Mapping[str, float]) -> Iterator[RenderableType]:
    """The quotas that limit the job, and why it gets its part of each."""
    if not plan.share.quotas:
        return

    yield Text()
    yield Text("quotas", style="bold")
    for share in plan.share.quotas:
        quota, jobs = share.quota, len(share.slices)
        whole = f"{quota.name}: {share.slice.amount} of {quota.amount} {quota.unit}"
        if jobs == 1:
            yield Text(f"{whole}; no other job is planned")
        elif share.is_enough:
            yield Text(f"{whole}; enough for all {jobs} jobs")
        else:
            at = launch_moment(plan)
            slices = ", ".join(slice_text(each, at) for each in share.slices)
            yield Text(f"{whole}; {slices}")

    if mean_ends:
        (policy, mean), *others = mean_ends.items()
        text = f"jobs of known length end after {mean:.1f} hours in the mean with {policy}"
        for name, hours in others:
            text += f", with {name} {hours:.1f}"
        yield Text(text)


def _terms(plan: JobPlan) -> Group:
    """The first hour by Eq. 4.1-4.4 of the paper, and the expected bill of the whole job by
    market."""
    forecast, table = forecast_of(plan), _table("expected bill", "machines", "$")
    for term in forecast.terms:
        machines, usd = f"up to {term.machines:,}", f"{term.usd:.4f}"
        table.add_row(str(term.market), machines, usd)
    total = f"{forecast.usd.median:.4f}"
    table.add_row("total", "", total, style="bold")

    estimate = plan.cost.estimate
    later = estimate.later.usd_per_work
    each = "no work is expected"
    if isfinite(later):
        each = f"${later:.4g} per {plan.demand.unit}"

    first = plan.demand.worded(estimate.first.explain())
    parts: list[RenderableType] = [Text("first hour", style="bold"), Text(first)]
    parts.append(Text(f"each later hour: {each}"))
    if not plan.demand.work.assumed:
        parts += [Text(), table]
    return Group(*parts)


def _rejected(plan: JobPlan, width: int) -> RenderableType:
    named = plan.rejected[:_MAX_REJECTED]
    left = len(plan.rejected) - len(named) + unnamed_markets(plan)
    more = [Text(f"and {counted(left, 'more market')} (--json lists more)")] if left else []
    if width >= _WIDE:
        table = _table("rejected", "reason", right=False)
        for rejection in named:
            table.add_row(market_name(rejection.market), Text(plan.demand.worded(rejection.why)))
        return Group(table, *more)

    lines = list[Text]()
    for rejection in named:
        why = f": {plan.demand.worded(rejection.why)}"
        lines.append(market_name(rejection.market).append(why, style="default"))

    return Group(Text("rejected", style="bold"), *lines, *more)


def _table(*columns: str, right: bool = True) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(
            name,
            justify="right"
            if right and not name.startswith(("market", "expected", "why"))
            else "left",
            overflow="fold",
        )

    return table


_MAX_ZONES = 20


def considered_zones(plan: JobPlan) -> list[dict[str, Any]]:
    """The markets between which a job may move, the best first: rows of `ZONE`."""
    rent, roaming, gigabytes = plan.cost.choice[0].rent, plan.decider.roaming, plan.demand.saved_gb
    offers, chosen_usd = plan.decider.offers, 0.0
    for outlook in reversed(plan.decision.outlooks):
        if offers[outlook.zone] == rent.offer:
            chosen_usd = outlook.spot_usd

    rows = []
    for outlook in plan.decision.outlooks:
        offer = offers[outlook.zone]
        price = int(plan.fleet.market_history.histories[offer.market].prices[-1])
        row = {"market": offer.market, "price": price, "outlook": outlook, "move_usd": None}
        if gigabytes is not None and roaming is not None:
            row["move_usd"] = roaming.move_usd(rent.offer.market, offer.market, gigabytes)

        more_usd = outlook.spot_usd - chosen_usd
        why_not = "the same to the end"
        if rent.bid is not None and rent.offer == offer:
            why_not = ""
        elif price > offer.on_demand:
            why_not = "costs more than on demand"
        elif rent.bid is None:
            why_not = "the decision costs less"
        elif more_usd >= 0.005:
            why_not = f"{usd_text(more_usd)} more to the end"
        row["why_not"] = why_not
        rows.append(row)

    return rows


ZONE: tuple[Column[Mapping[str, Any]], ...] = (
    Column(
        "market",
        "the market",
        form=str,
        heading="market considered",
        show=market_name,
    ),
    Column(
        "usd_per_hour",
        "current spot price of a machine",
        "price",
        form=to_usd,
        heading="price",
        show=lambda nanos: f"${format_usd(nanos)}",
    ),
    Column(
        "chance_of_spot",
        "probability that spot machines are available there",
        "outlook.chance",
        heading="spot up",
        show="{:.0%}",
    ),
    Column(
        "expected_life_hours",
        "expected hours until a machine there is evicted",
        "outlook.lasts",
        heading="lasts",
        show="{:.1f} h",
    ),
    Column(
        "move_usd",
        "cost of moving the checkpoint there from the market in which the job begins; null if its "
        "size is unknown",
        heading="move there",
        show=usd_text,
        unknown="unknown",
    ),
    Column(
        "cost_to_end_usd",
        "expected cost to the end of the job if it begins there on spot machines",
        "outlook.spot_usd",
        heading="to the end",
        show=usd_text,
    ),
    Column(
        "on_demand_to_end_usd",
        "expected cost to the end of the job if it begins there on demand",
        "outlook.on_demand_usd",
    ),
    Column(
        "why_not",
        "why the job does not begin there; empty for the market in which it does",
        heading="why not",
        empty="chosen",
    ),
)


def zones_view(plan: JobPlan) -> Group:
    """The considered markets as a table."""
    rows = considered_zones(plan)
    shown = [column for column in ZONE if column.heading is not None]
    table = _table(*(column.heading or "" for column in shown))
    for row in rows[:_MAX_ZONES]:
        table.add_row(*(column.text(row) for column in shown))

    remarks, more = list[str](), len(rows) - _MAX_ZONES
    if more > 0:
        markets = counted(more, "more market")
        remarks.append(f"and {markets} (--json lists all)")
    cheapest = min(outlook.on_demand_usd for outlook in plan.decision.outlooks)
    remarks.append(f"on demand: at least {usd_text(cheapest)} to the end")
    remarks.append(
        "a running job moves once that saves at least half of the cost of moving and starting up"
    )

    return Group(table, *map(Text, remarks))
