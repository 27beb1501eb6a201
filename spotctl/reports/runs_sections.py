"""The parts of the page about single runs: who was there, what prices were, the plan, the trend, and all runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median

from pricing_data.units import HOUR, format_time, to_datetime
from spotctl.reports import words
from spotctl.reports.charts.dots import Dot, dots
from spotctl.reports.charts.steps import Layer, Mark, Phase, footprint, prices, unbroken
from spotctl.reports.cost import Report, RunCost, usd
from spotctl.reports.markup import Head, both, figure, paragraph, section, subheading, table
from spotctl.reports.money import MarketCost, held_prices
from spotctl.reports.run_timeline import Eviction, RunTimeline
from spotctl.runlog.outcomes import DONE

MOST_JOBS = 4
"""So many jobs are shown by their latest run: who wants more asks for them with --job."""
MOST_TREND = 60
MOST_RUNS = 120
MOST_TOLD = 10

Shown = Callable[[float], str]
"""How a figure is written."""

_LAYERS = (
    ("reliable", "reliable machine"),
    ("ondemand", "on-demand machine"),
    ("spot", "spot machine"),
)


def latest_of(report: Report) -> list[RunTimeline]:
    """The latest run of each job that had machines, the newest first."""
    had = sorted((story for story in report.stories if story.footings), key=lambda story: -story.wall_began)
    latest = {story.job: story for story in reversed(had)}
    return sorted(latest.values(), key=lambda story: -story.wall_began)[:MOST_JOBS]


# -- who was there -----------------------------------------------------------------------------------------------------


def machines_section(report: Report) -> str:
    """Machines over time with stages and evictions, for the latest run of each job."""
    shown = latest_of(report)
    if not shown:
        return section("Machines over time", paragraph("No machine was rented."))
    lead = (
        "How many machines worked at a time. The strip above says in which stage the job was; a triangle marks machines"
        " that the provider took back, filled where it came without a warning."
    )
    return section("Machines over time", paragraph(lead, "lead"), *map(_footprint, shown))


def _footprint(story: RunTimeline) -> str:
    marks = _marks(story.evictions)
    title = (
        f"Machines of {story.run} over time: at most {max(f.reliable + f.on_demand + f.spot for f in story.footings)}"
    )
    title += f", {len(story.evictions)} taken away"
    layers = _layers(story)
    phases = _phases(story)
    picture = both(lambda frame: footprint(frame, title, layers, phases, marks), 300, 52)
    present = [key for key, layer in zip(_LAYERS, layers, strict=True) if any(value for _, value in layer.points)]
    rows = [(format_time(f.at), str(f.reliable), str(f.on_demand), str(f.spot)) for f in story.footings]
    heads = (Head("from (provider's clock)", is_text=True), Head("reliable"), Head("on demand"), Head("spot"))
    return _named(story) + figure(picture, present, table(heads, rows))


def _named(story: RunTimeline) -> str:
    return subheading(story.run, f"began {words.minute(story.wall_began)}, {words.outcome(story)}")


def _layers(story: RunTimeline) -> list[Layer]:
    points = [(f.at, (f.reliable, f.on_demand, f.spot)) for f in story.footings]
    if story.until > points[-1][0]:
        points.append((story.until, points[-1][1]))
    return [
        Layer(class_, name, tuple((at, float(counts[i])) for at, counts in points))
        for i, (class_, name) in enumerate(_LAYERS)
    ]


def _phases(story: RunTimeline) -> list[Phase]:
    if not story.stages:
        return []
    ends = [*(later.at for later in story.stages[1:]), max(story.until, story.stages[-1].at)]
    return [Phase(stage.at, end, min(max(stage.number, 1), 3)) for stage, end in zip(story.stages, ends, strict=True)]


def _marks(evictions: Sequence[Eviction]) -> list[Mark]:
    """Machines that went at one moment are one mark."""
    marks = []
    for (at, warned), together in groupby(evictions, key=lambda one: (one.at, one.warned)):
        these = list(together)
        where = ", ".join(sorted({str(one.market) for one in these}))
        how = "after a warning" if warned else "without a warning"
        noun = "machine" if len(these) == 1 else "machines"
        marks.append(Mark(at, warned, f"{to_datetime(at):%H:%M} {len(these)} {noun} of {where} {how}"))
    return marks


# -- prices ------------------------------------------------------------------------------------------------------------


def prices_section(report: Report, markets: Sequence[MarketCost]) -> str:
    """Prices paid while machines were held, for the latest run of each job."""
    parts = [part for story in latest_of(report) if (part := _prices(report, story, markets))]
    if not parts:
        return section("Price paid against on-demand", paragraph("No spot machine was rented."))
    lead = "What spot machines cost while they were held, as a share of what the same machine costs on demand."
    return section("Price paid against on-demand", paragraph(lead, "lead"), *parts)


def _prices(report: Report, story: RunTimeline, markets: Sequence[MarketCost]) -> str:
    held = held_prices(report.of_run(story.run), markets)
    if not held:
        return ""
    title = f"Prices that {story.run} paid in percent of on-demand, in {len(held)} markets"
    picture = both(lambda frame: prices(frame, title, held))
    rows = [
        (one.name, format_time(run[0][0]), format_time(run[-1][1]), *_lowest_and_highest(run))
        for one in held
        for run in unbroken(one.pieces)
    ]
    heads = (Head("market", is_text=True), *(Head(name, is_text=True) for name in ("from", "to")))
    heads += (Head("lowest of on-demand"), Head("highest"))
    keys = list(dict.fromkeys((one.class_, one.name) for one in held))
    return _named(story) + figure(picture, keys, table(heads, rows))


def _lowest_and_highest(run: Sequence[tuple[int, int, float]]) -> tuple[str, str]:
    percents = [percent for _, _, percent in run]
    return f"{min(percents):.1f}%", f"{max(percents):.1f}%"


# -- plan --------------------------------------------------------------------------------------------------------------


def plan_section(report: Report) -> str:
    """What was planned beside what came, run by run."""
    of = {one.story.run: one for one in report.history}
    planned = [of[story.run] for story in report.stories if story.expected.usd is not None]
    title = "Plan against actual"
    if not planned:
        return section(title, paragraph("No plan was written down for these runs."))
    done = [one for one in planned if not one.story.goes_on]
    lead = _plan_words(done) if done else "What was planned for runs that still go on."
    latest = planned[-1]
    parts = [paragraph(lead, "lead"), _plan_table(latest, words.digits_of(report))]
    if len(planned) > 1:
        shown = planned[-MOST_TREND:]
        runs = [_planned_dot(one) for one in shown]
        alt = f"Cost of {len(shown)} runs beside what was planned for them"
        keys = (("plan", "what was planned, from the low to the high"), ("s0", "what it cost"))
        parts.append(figure(both(lambda frame: dots(frame, alt, runs)), keys))
    return section(title, *parts)


def _plan_words(done: Sequence[RunCost]) -> str:
    planned = sum(one.story.expected.usd or 0.0 for one in done)
    paid = sum(usd(one.figures.total) for one in done)
    inside = sum(_inside(one) for one in done)
    text = f"{words.dollars(planned)} was planned and {words.dollars(paid)} paid"
    if planned:
        text += f", {abs(paid / planned - 1):.0%} {'more' if paid > planned else 'less'}"
    if len(done) > 1:
        text += f"; {inside} of {len(done)} runs cost what the plan held possible"
    if any(one.story.expected.assumed for one in done):
        text += ". How much work a job is was assumed where nobody knew it"
    return text + "."


def _inside(one: RunCost) -> bool:
    low, high = one.story.expected.usd_low, one.story.expected.usd_high
    return low is not None and high is not None and low <= usd(one.figures.total) <= high


def _plan_table(one: RunCost, digits: int) -> str:
    expected, story = one.story.expected, one.story
    took = (story.until - story.began) / HOUR
    low, high = expected.usd_low, expected.usd_high
    between = "" if low is None or high is None else f"{words.dollars(low, digits)} to {words.dollars(high, digits)}"
    rows = [_against("cost", expected.usd, usd(one.figures.total), lambda value: words.dollars(value, digits), between)]
    rows.append(_against("hours", expected.hours, took, lambda value: f"{value:,.1f}", ""))
    rows.append(
        _against(
            "on demand",
            expected.on_demand_usd,
            usd(one.figures.on_demand),
            lambda value: words.dollars(value, digits),
            "",
        )
    )
    if expected.budget_usd is not None:
        share = f"{usd(one.figures.total) / expected.budget_usd:.0%} of it" if expected.budget_usd else ""
        rows.append(["budget", words.dollars(expected.budget_usd), "", words.money(one.figures.total, digits), share])
    heads = (
        Head("", is_text=True),
        Head("planned"),
        Head("held possible", is_less=True),
        Head("actual"),
        Head("difference"),
    )
    so_far = ", so far" if story.goes_on else ""
    return table(heads, rows, caption=f"The latest run with a plan: {story.run}{so_far}")


def _against(name: str, planned: float | None, actual: float, shown: Shown, between: str) -> list[str]:
    if planned is None:
        return [name, words.UNKNOWN, between, shown(actual), ""]
    difference = f"{actual / planned - 1:+.0%}" if planned else ""
    return [name, shown(planned), between, shown(actual), difference]


def _planned_dot(one: RunCost) -> Dot:
    story, expected = one.story, one.story.expected
    cost = usd(one.figures.total)
    said = f"{story.run}: {words.dollars(cost, 4)}, planned {words.dollars(expected.usd or 0.0, 4)}"
    label = _label(story)
    return Dot(label, said, cost, goes_on=story.goes_on, low=expected.usd_low, high=expected.usd_high)


def _label(story: RunTimeline) -> str:
    moment = to_datetime(story.wall_began)
    return f"{moment.day} {moment:%b}"


# -- trend -------------------------------------------------------------------------------------------------------------


def trend_section(report: Report) -> str:
    """Each job's runs beside the ones before them."""
    newest = sorted({one.story.job: one for one in report.history}.values(), key=lambda one: -one.story.wall_began)
    parts = [part for one in newest[:MOST_JOBS] if (part := _trend(report, one.story.job))]
    if not parts:
        return section("Trend", paragraph("There is no earlier run of the same job to compare with."))
    lead = "Each dot is a run; the dashed line is the median of the runs before the latest."
    return section("Trend", paragraph(lead, "lead"), *parts)


def _trend(report: Report, job: str) -> str:
    runs = [one for one in report.history if one.story.job == job][-MOST_TREND:]
    by_work = all(one.figures.usd_per_work is not None for one in runs)
    over = [one for one in runs if not one.story.goes_on]
    if len(runs) < 2 or not over[:-1]:
        return ""
    of = [_trend_value(one, by_work=by_work) for one in runs]
    usual = median(_trend_value(one, by_work=by_work) for one in over[:-1])
    chosen = {story.run for story in report.stories}
    unit = "dollars per unit of work" if by_work else "dollars a run"
    shown = [
        Dot(
            _label(one.story),
            f"{one.story.run}, {_label(one.story)}: {words.per_work(value) if by_work else words.dollars(value, 4)}",
            value,
            one.story.run in chosen,
            one.story.goes_on,
        )
        for one, value in zip(runs, of, strict=True)
    ]
    alt = f"{job}: {unit} of {len(runs)} runs"
    picture = both(lambda frame: dots(frame, alt, shown, usual), 240)
    last = _trend_value(over[-1], by_work=by_work)
    return subheading(job, unit) + paragraph(_trend_words(last, usual, len(over) - 1)) + figure(picture)


def _trend_value(one: RunCost, *, by_work: bool) -> float:
    return (one.figures.usd_per_work or 0.0) if by_work else usd(one.figures.total)


def _trend_words(last: float, usual: float, before: int) -> str:
    of = "the run before it" if before == 1 else f"the median of the {before} runs before it"
    if not usual:
        return f"The latest run that ended is compared with {of}, which cost nothing."
    change = last / usual - 1
    if abs(change) < 0.005:
        return f"The latest run that ended cost as much as {of}."
    return f"The latest run that ended cost {abs(change):.0%} {'more' if change > 0 else 'less'} than {of}."


# -- all runs ----------------------------------------------------------------------------------------------------------


def runs_section(report: Report) -> str:
    """The runs, the newest first."""
    of = {one.story.run: one for one in report.history}
    newest = sorted((of[story.run] for story in report.stories), key=lambda one: -one.story.wall_began)
    shown, digits = newest[:MOST_RUNS], words.digits_of(report)
    heads = (
        Head("run", is_text=True),
        Head("began", is_text=True, is_less=True),
        Head("took", is_less=True),
        Head("ended", is_text=True),
        Head("machine-hours", is_less=True),
        Head("evictions"),
        Head("on demand", is_less=True),
        Head("paid"),
        Head("saved"),
    )
    whole = report.whole
    foot = ["total", "", "", "", words.hours(whole.machine_micros), words.whole_number(whole.evictions)]
    foot += [words.money(whole.on_demand, digits), words.money(whole.total, digits), words.percent(whole.saved_pct)]
    parts = [table(heads, [_run(one, digits) for one in shown], foot)]
    if len(newest) > len(shown):
        left = len(newest) - len(shown)
        parts.append(paragraph(f"The latest {len(shown)} are shown; {left:,} earlier ones count in the total.", "lead"))
    parts += [paragraph(f"{story.run}: {story.outcome}. {story.message}") for story in _told(report)]
    return section("All runs", *parts, is_long=True)


def _told(report: Report) -> list[RunTimeline]:
    """The latest runs that ended otherwise than well and say why."""
    ended = [story for story in report.stories if story.outcome not in (None, DONE) and story.message]
    return sorted(ended, key=lambda story: -story.wall_began)[:MOST_TOLD]


def _run(one: RunCost, digits: int) -> list[str]:
    story, figures = one.story, one.figures
    return [
        story.run,
        words.minute(story.wall_began).removesuffix(" UTC"),
        words.span(story.until - story.began),
        words.outcome(story),
        words.hours(figures.machine_micros),
        words.whole_number(figures.evictions),
        words.money(figures.on_demand, digits),
        words.money(figures.total, digits) + (" *" if story.goes_on else ""),
        words.percent(figures.saved_pct),
    ]
