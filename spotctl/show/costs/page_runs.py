"""The sections of the page about single runs: machines, prices, plan, trend, and the list of all
runs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from statistics import median

from pricing_data.units import HOUR, MINUTE, counted, moment, to_datetime, usd_text
from spotctl.log.ledger.account import RunTimeline
from spotctl.log.ledger.rows import usd
from spotctl.log.outcomes import DONE
from spotctl.show.columns import UNKNOWN
from spotctl.show.costs import columns as fmt
from spotctl.show.costs.charts import (
    Dot,
    Layer,
    Series,
    StageBand,
    dot_chart,
    footprint,
    prices,
    unbroken,
)
from spotctl.show.costs.columns import HTML_RUNS, texts
from spotctl.show.costs.cost import Report, RunCost
from spotctl.show.costs.markup import (
    ColumnHead,
    Html,
    figure,
    for_both_widths,
    fragment,
    heads_of,
    paragraph,
    section,
    subheading,
    table,
    times,
)
from spotctl.show.costs.money import MarketCost, held_prices, minimum_bids

MAX_JOBS = 4
"""The most jobs whose latest run is shown; --job selects others."""
MAX_TREND = 60
MAX_RUNS = 120
MAX_MESSAGES = 10
_MAX_TURNS = 8

_LAYERS = (
    ("reliable", "reliable machine"),
    ("ondemand", "on-demand machine"),
    ("spot", "spot machine"),
    ("s2", "reserved machine"),
)


def latest_of(report: Report) -> list[RunTimeline]:
    """The latest run with machines of each job, the newest first."""
    rented = [run for run in report.runs if run.mixes]
    rented.sort(key=attrgetter("wall_began"), reverse=True)
    latest = {run.job: run for run in reversed(rented)}
    newest = sorted(latest.values(), key=attrgetter("wall_began"), reverse=True)
    return newest[:MAX_JOBS]


# -- machines --------------------------------------------------------------------------------------


def machines_section(report: Report) -> Html:
    """Machines over time with stages and evictions, for the latest run of each job."""
    latest = latest_of(report)
    if not latest:
        return section("Machines over time", paragraph("No machines were rented."))

    lead = "Machines by kind."
    if any(run.stages for run in latest):
        lead += " The band above shows the stage of a training."
    if any(run.evictions for run in latest):
        lead += " Triangles mark evictions; filled ones came without warning."

    return section("Machines over time", paragraph(lead, "lead"), *map(_footprint, latest))


def _footprint(run: RunTimeline) -> Html:
    # Reserved machines have a layer only in a run that had some.
    used = 4 if any(mix.reserved for mix in run.mixes) else 3
    points, rows, most = list[tuple[int, Sequence[int]]](), list[list[str]](), 0
    for mix in run.mixes:
        held = (mix.reliable, mix.on_demand, mix.spot, mix.reserved)[:used]
        points.append((mix.at, held))
        rows.append([moment(mix.at), *map(str, held)])
        most = max(most, sum(held))

    last_at, last_held = points[-1]
    if run.until > last_at:
        points.append((run.until, last_held))
    layers, keys = list[Layer](), list[tuple[str, str]]()
    for i, (class_, name) in enumerate(_LAYERS[:used]):
        levels = tuple((at, float(held[i])) for at, held in points)
        layers.append(Series(class_, name, levels))
        if any(level for _, level in levels):
            keys.append((class_, name))

    # Each stage ends where the next one begins, the last one with the run.
    stages = list[StageBand]()
    for i, (at, number) in enumerate(run.stages):
        is_last = i == len(run.stages) - 1
        end = max(run.until, at) if is_last else run.stages[i + 1][0]
        stages.append((at, end, min(number, 3)))

    title = f"Machines of {run.run} over time: at most {most}, {len(run.evictions)} evicted"

    # A mark for all machines that were evicted at one moment.
    marks = []
    for (at, warned), group in groupby(run.evictions, key=attrgetter("at", "warned")):
        evicted = list(group)
        markets = ", ".join(sorted({str(eviction.market) for eviction in evicted}))
        how = "with a warning" if warned else "without warning"
        tooltip = (
            f"{to_datetime(at):%H:%M} {counted(len(evicted), 'machine')} of {markets} evicted {how}"
        )
        marks.append((at, warned, tooltip))

    picture = for_both_widths(footprint, title, layers, stages, marks, height=300, top=52)
    heads = [ColumnHead("from (provider's clock)", is_text=True)]
    heads += [ColumnHead(name) for name in ("reliable", "on demand", "spot", "reserved")[:used]]

    return fragment(_run_heading(run), figure(picture, keys, table(heads, rows)))


def _run_heading(run: RunTimeline) -> Html:
    return subheading(run.run, f"started {fmt.minute(run.wall_began)}, {fmt.outcome(run)}")


# -- prices ----------------------------------------------------------------------------------------


def prices_section(report: Report, markets: Sequence[MarketCost]) -> Html:
    """Prices paid while machines were held, for the latest run of each job."""
    parts = [part for run in latest_of(report) if (part := _prices(report, run, markets))]
    if not parts:
        return section(
            "Price paid relative to on-demand", paragraph("No spot machines were rented.")
        )

    lead = (
        "The price of spot machines while they were held, in percent of the on-demand price of the "
        "same machine."
    )
    if any(run.minimum_bids for run in latest_of(report)):
        lead += " Dashed lines are the lowest minimum bids that hosts asked for."
    return section("Price paid relative to on-demand", paragraph(lead, "lead"), *parts)


def _prices(report: Report, run: RunTimeline, markets: Sequence[MarketCost]) -> Html:
    of_run = [row for row in report.rows if row.run == run.run]
    lines = held_prices(of_run, markets)
    if not lines:
        return Html()

    title = f"Prices paid by {run.run} in percent of on-demand, in {len(lines)} markets"
    lines += minimum_bids(run, markets)
    picture = for_both_widths(prices, title, lines)
    held = [(line.name, pieces) for line in lines for pieces in unbroken(line.data)]
    begins = times([pieces[0][0] for _, pieces in held])
    rows = list[tuple[str, str, str, str, str]]()

    for (name, pieces), begin in zip(held, begins, strict=True):
        _, end, _ = pieces[-1]
        percents = [percent for _, _, percent in pieces]
        lowest, highest = f"{min(percents):.1f}%", f"{max(percents):.1f}%"
        rows.append((name, begin, moment(end), lowest, highest))

    heads = [
        ColumnHead("market", is_text=True),
        ColumnHead("from", is_text=True),
        ColumnHead("to", is_text=True, wide_only=True),
        ColumnHead("lowest, % of on-demand"),
        ColumnHead("highest"),
    ]

    keys = list(dict.fromkeys((line.class_, line.name) for line in lines))
    shown = figure(picture, keys, table(heads, rows))
    return fragment(_run_heading(run), shown)


# -- plan ------------------------------------------------------------------------------------------


def plan_section(report: Report) -> Html:
    """Planned against actual cost, run by run."""
    cost_of = {cost.timeline.run: cost for cost in report.history}
    planned = [cost_of[run.run] for run in report.runs if run.expected.usd is not None]
    title = "Plan against actual"
    if not planned:
        return section(title, paragraph("No plan was logged for these runs."))

    ended = [cost for cost in planned if not cost.timeline.is_running]
    lead = "The plan of runs that are still running."
    if ended:
        word = fmt.paid(report)
        planned_usd = sum(cost.timeline.expected.usd or 0.0 for cost in ended)
        paid_usd = sum(usd(cost.figures.total) for cost in ended)
        inside, is_assumed = 0, False
        for cost in ended:
            forecast, actual = cost.timeline.expected, usd(cost.figures.total)
            is_assumed |= forecast.assumed
            if forecast.usd_low is not None and forecast.usd_high is not None:
                inside += forecast.usd_low <= actual <= forecast.usd_high

        text = f"{usd_text(planned_usd)} was planned and {usd_text(paid_usd)} {word}"
        if planned_usd:
            change = abs(paid_usd / planned_usd - 1)
            text += f", {change:.0%} {'more' if paid_usd > planned_usd else 'less'}"
        if len(ended) > 1:
            text += f"; {inside} of {len(ended)} runs fell inside the predicted range"
        if is_assumed:
            text += ". Where the job length was unknown, the plan assumed one"
        lead = text + "."
    plan = _plan_table(planned[-1], fmt.digits_of(report))
    parts = [paragraph(lead, "lead"), plan]

    if len(planned) > 1:
        dots = list[Dot]()
        for cost in planned[-MAX_TREND:]:
            run, expected = cost.timeline, cost.timeline.expected
            paid, hoped = usd(cost.figures.total), expected.usd or 0.0
            tooltip = f"{run.run}: {usd_text(paid, 4)}, planned {usd_text(hoped, 4)}"
            day, is_running = fmt.short_day(run.wall_began), run.is_running
            low, high = expected.usd_low, expected.usd_high
            dots.append(Dot(day, tooltip, paid, is_running=is_running, low=low, high=high))

        alt = f"Cost of {len(dots)} runs with their planned ranges"
        keys = (("plan", "planned range"), ("s0", "actual cost"))
        picture = for_both_widths(dot_chart, alt, dots)
        parts.append(figure(picture, keys))

    return section(title, *parts)


def _plan_table(run_cost: RunCost, digits: int) -> Html:
    figures, run = run_cost.figures, run_cost.timeline
    expected, cost = run.expected, usd(figures.total)
    took = (run.until - run.began) / HOUR
    on_demand = None if figures.on_demand is None else usd(figures.on_demand)
    low, high = expected.usd_low, expected.usd_high
    predicted = ""
    if low is not None and high is not None:
        predicted = f"{usd_text(low, digits)} to {usd_text(high, digits)}"

    dollars = partial(usd_text, digits=digits)
    rows = [
        _against("cost", expected.usd, cost, dollars, predicted),
        _against("hours", expected.hours, took, "{:,.1f}".format),
        _against("on demand", expected.on_demand_usd, on_demand, dollars),
    ]

    budget = expected.budget_usd
    if budget is not None:
        share = f"{cost / budget:.0%} used" if budget else ""
        rows.append(["budget", usd_text(budget), "", dollars(cost), share])

    if expected.turns:
        first_turn, _ = expected.turns[0]
        late = (run.began - first_turn) / HOUR
        rows.append(["begin", moment(first_turn), "", moment(run.began), f"{late:+.1f} h"])
        held = [(mix.at, mix.on_demand + mix.spot + mix.reserved) for mix in run.mixes]
        wanted = _machines_text(run.began, expected.turns)
        had = _machines_text(run.began, held)
        rows.append(["machines", wanted, "", had, ""])

    heads = [
        ColumnHead("", is_text=True),
        ColumnHead("planned"),
        ColumnHead("predicted range", wide_only=True),
        ColumnHead("actual"),
        ColumnHead("difference"),
    ]

    caption = f"The latest run with a plan: {run.run}"
    if run.is_running:
        caption += ", so far"
    return table(heads, rows, caption=caption)


def _machines_text(began: int, turns: Sequence[tuple[int, int]]) -> str:
    """The machines of a job that shares quotas, besides reliable ones, from its begin on: `1, 2
    after 3.5 h`.
    """
    texts, last = list[str](), 0
    for at, machines in turns:
        if machines != last:
            later = f" after {(at - began) / HOUR:.1f} h" if at - began >= MINUTE else ""
            texts.append(f"{machines}{later}")
        last = machines

    left = len(texts) - _MAX_TURNS
    return ", ".join(texts[:_MAX_TURNS]) + (
        f" and {counted(left, 'more change')}" if left > 0 else ""
    )


def _against(
    name: str,
    planned: float | None,
    actual: float | None,
    text: Callable[[float], str],
    predicted: str = "",
) -> list[str]:
    difference = ""
    if planned and actual is not None:
        difference = f"{actual / planned - 1:+.0%}"
    before = UNKNOWN if planned is None else text(planned)
    after = UNKNOWN if actual is None else text(actual)
    return [name, before, predicted, after, difference]


# -- trend -----------------------------------------------------------------------------------------


def trend_section(report: Report) -> Html:
    """The runs of each job compared with the ones before them."""
    latest = {cost.timeline.job: cost.timeline for cost in report.history}
    newest = sorted(latest.values(), key=attrgetter("wall_began"), reverse=True)
    parts = [part for run in newest[:MAX_JOBS] if (part := _trend(report, run.job))]
    if not parts:
        return section("Trend", paragraph("No earlier run of the same job to compare with."))
    lead = "Each dot is a run; the dashed line is the median of the runs before the latest."
    return section("Trend", paragraph(lead, "lead"), *parts)


def _trend(report: Report, job: str) -> Html:
    known = [cost for cost in report.history if not cost.figures.is_least]
    runs = [cost for cost in known if cost.timeline.job == job][-MAX_TREND:]
    per_work = [cost.figures.usd_per_work for cost in runs]
    by_work = None not in per_work
    values = [value or 0.0 for value in per_work]
    if not by_work:
        values = [usd(cost.figures.total) for cost in runs]

    by_run = list(zip(runs, values, strict=True))
    ended = [value for cost, value in by_run if not cost.timeline.is_running]
    if len(runs) < 2 or not ended[:-1]:
        return Html()

    usual = median(ended[:-1])
    reported = {run.run for run in report.runs}
    dots = list[Dot]()
    for cost, value in by_run:
        run, label = cost.timeline, fmt.short_day(cost.timeline.wall_began)
        amount = fmt.per_work(value) if by_work else usd_text(value, 4)
        tooltip = f"{run.run}, {label}: {amount}"
        dots.append(Dot(label, tooltip, value, run.run in reported, run.is_running))

    unit = "dollars per clock" if by_work else "dollars per run"
    alt = f"{job}: {unit} of {len(runs)} runs"
    picture = for_both_widths(dot_chart, alt, dots, usual, height=240)

    before = len(ended) - 1
    reference = "the run before it" if before == 1 else f"the median of the {before} runs before it"
    change = ended[-1] / usual - 1 if usual else 0.0
    text = f"cost {abs(change):.0%} {'more' if change > 0 else 'less'} than {reference}"

    if not usual:
        text = f"is compared with {reference}, which cost nothing"
    elif abs(change) < 0.005:
        text = f"cost as much as {reference}"

    sentence = paragraph(f"The latest completed run {text}.")
    return fragment(subheading(job, unit), sentence, figure(picture))


# -- all runs --------------------------------------------------------------------------------------


def runs_section(report: Report) -> Html:
    """All runs of the report, the newest first."""
    cost_of = {cost.timeline.run: cost for cost in report.history}
    newest = sorted(report.runs, key=attrgetter("wall_began"), reverse=True)
    digits, more = fmt.digits_of(report), len(newest) - MAX_RUNS
    heads = [
        ColumnHead("run", is_text=True),
        ColumnHead("started", is_text=True, wide_only=True),
        ColumnHead("duration", wide_only=True),
        ColumnHead("outcome", is_text=True),
        *heads_of(HTML_RUNS, report, wide_only="machine_hours evictions on_demand_usd"),
    ]

    foot = ["total", "", "", "", *texts(HTML_RUNS, report.whole, digits)]
    rows = list[list[str]]()
    for shown in newest[:MAX_RUNS]:
        cost = cost_of[shown.run]
        run = cost.timeline
        name = f"{run.run}{fmt.RUNNING_MARK}" if run.is_running else run.run
        began = fmt.minute(run.wall_began).removesuffix(" UTC")
        span = fmt.span(run.until - run.began)
        figures = texts(HTML_RUNS, cost.figures, digits)
        rows.append([name, began, span, fmt.outcome(run), *figures])

    parts = [table(heads, rows, foot)]
    if more > 0:
        lead = f"Only the latest {MAX_RUNS} are listed; the total includes {more:,} more."
        parts.append(paragraph(lead, "lead"))

    unsuccessful = [run for run in newest if run.outcome not in (None, DONE) and run.message]
    for run in unsuccessful[:MAX_MESSAGES]:
        why = f"{run.run}: {run.outcome}. {run.message}"
        parts.append(paragraph(why))

    return section("All runs", *parts, is_long=True)
