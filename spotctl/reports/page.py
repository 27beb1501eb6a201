"""A cost report as one page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files

from pricing_data.units import HOUR
from spotctl.reports import words
from spotctl.reports.charts.bars import Part, columns, share
from spotctl.reports.charts.steps import cumulative
from spotctl.reports.cost import By, Figures, Report, usd
from spotctl.reports.markup import Head, both, figure, paragraph, section, table
from spotctl.reports.money import MarketCost, columns_of, cumulative_of, markets_of, parts_of
from spotctl.reports.runs_sections import machines_section, plan_section, prices_section, runs_section, trend_section

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_TERMS = (
    ("Paid", "What the provider charges, less what it gave back: the price in force at each moment, by its own rule."),
    ("On demand", "What the same work would have cost on machines that nobody takes away, at the listed price."),
    (
        "Refunded",
        "Charged and given back, because the provider took a machine before an hour it does not charge was over.",
    ),
    ("Redone", "Time in which machines did again what was lost when others were taken away."),
    (
        "Waiting",
        "Time in which machines started, loaded, or were idle: there before others were ready or after the end.",
    ),
)


def html(report: Report) -> str:
    """The page."""
    markets = markets_of(report)
    body = [
        _head(report),
        _tiles(report),
        _uses(report),
        _over_time(report, markets),
        _markets(report, markets),
        _groups(report),
        machines_section(report),
        prices_section(report, markets),
        plan_section(report),
        trend_section(report),
        runs_section(report),
        _foot(report),
    ]
    title = f"Cost of {words.subject(report)}, {_period(report)}"
    return _PAGE.format(title=escape(title), style=_style(), body="\n".join(body))


@cache
def _style() -> str:
    return files("spotctl.reports").joinpath("page.css").read_text(encoding="utf-8")


def _period(report: Report) -> str:
    first = min(story.wall_began for story in report.stories)
    last = max(story.wall_ended or report.made_at for story in report.stories)
    begin, end = words.day(first), words.day(last)
    return begin if begin == end else f"{begin} to {end}"


def _head(report: Report) -> str:
    whole, digits = report.whole, words.digits_of(report)
    jobs = sorted({story.job for story in report.stories})
    shown = jobs[0] if len(jobs) == 1 else f"{', '.join(jobs[:3])}{' and others' if len(jobs) > 3 else ''}"
    parts = [
        paragraph(f"Cost report · {_period(report)} · {words.runs(whole.runs)}", "eyebrow"),
        f"<h1>{escape(shown)}</h1>",
        _verdict(report, digits),
    ]
    if whole.on_demand > 0:
        parts.append(_versus(report, digits))
    if report.is_replayed:
        parts.append(
            paragraph(
                "These runs were on the replayed market of one computer. Prices and evictions are those of a recorded"
                " or made-up past, and nobody was charged. Dates of runs are this computer's; times in charts are the"
                " market's.",
                "notice",
            )
        )
    if whole.going_on:
        going = "1 run still goes on" if whole.going_on == 1 else f"{whole.going_on} runs still go on"
        parts.append(
            paragraph(f"{going} (*): {words.money(whole.unsettled, digits)} of what is shown can change.", "notice")
        )
    return f"<header>{''.join(parts)}</header>"


def _verdict(report: Report, digits: int) -> str:
    whole = report.whole
    so_far = " so far" if whole.going_on else ""
    paid = f"{words.money(whole.total, digits)} paid{so_far}."
    if whole.saved_pct is None:
        return paragraph(paid, "verdict")
    listed = words.money(whole.on_demand, digits)
    if whole.saved >= 0:
        saved = f"<strong>{words.money(whole.saved, digits)} saved, {words.percent(whole.saved_pct)}</strong>"
    else:
        saved = f'<strong class="dearer">{words.money(-whole.saved, digits)} more was paid</strong>'
    return f'<p class="verdict">{paid} On demand, the same work would have cost {listed}: {saved}.</p>'


def _versus(report: Report, digits: int) -> str:
    whole = report.whole
    most = max(whole.total, whole.on_demand, 1)
    rows = []
    for name, amount, class_ in (("Paid", whole.total, "paid"), ("On demand", whole.on_demand, "od")):
        width = f"{max(100 * amount / most, 0.4):.2f}%"
        bar = f'<svg aria-hidden="true"><rect width="{width}" height="14" rx="3" class="{class_}"/></svg>'
        rows.append(f'<dt>{name}</dt><dd>{bar}</dd><dd class="amount">{words.money(amount, digits)}</dd>')
    return f'<dl class="versus">{"".join(rows)}</dl>'


def _tiles(report: Report) -> str:
    whole, digits = report.whole, words.digits_of(report)
    tiles = [
        ("Machine-hours", words.hours(whole.machine_micros), _an_hour(whole)),
        ("Evictions", words.whole_number(whole.evictions), _how_often(whole)),
        ("Redone work", words.money(whole.lost_work, digits), _part_of(whole.lost_work, whole.total)),
        ("Waiting", words.money(whole.waiting, digits), _part_of(whole.waiting, whole.total)),
        ("Refunded", words.money(whole.free, digits), "charged and given back"),
    ]
    if whole.usd_per_work is not None:
        tiles.append(
            ("Per unit of work", words.per_work(whole.usd_per_work), f"{words.whole_number(whole.work)} in all")
        )
    shown = "".join(
        f'<div><dt>{escape(name)}</dt><dd class="figure">{escape(value)}</dd>'
        f'<dd class="small">{escape(more)}</dd></div>'
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{shown}</dl>'


def _an_hour(whole: Figures) -> str:
    hours = whole.machine_micros / HOUR
    return f"${usd(whole.total) / hours:.4f} each" if hours else ""


def _how_often(whole: Figures) -> str:
    hours = whole.machine_micros / HOUR
    return f"one in {hours / whole.evictions:.1f} machine-hours" if whole.evictions else "no machine was taken back"


def _part_of(amount: int, whole: int) -> str:
    if whole <= 0:
        return ""
    share = "under 0.1%" if 0 < amount / whole < 0.0005 else f"{amount / whole:.1%}"
    return f"{share} of what was paid"


def _uses(report: Report) -> str:
    parts = parts_of(report.whole)
    total, digits = usd(report.whole.total), words.digits_of(report)
    rows = [
        (part.name, words.dollars(part.value, digits), f"{part.value / total:.1%}" if total > 0 else "")
        for part in parts
        if part.value or part.class_ == "working"
    ]
    heads = (Head("machines were", is_text=True), Head("paid"), Head("share"))
    foot = ("total", words.dollars(total, digits), "")
    alt = "What was paid, by what machines did: " + "; ".join(f"{name} {value} {part}" for name, value, part in rows)
    bar = share(alt, parts)
    free = report.whole.free
    more = f" Another {words.money(free, digits)} was charged and given back." if free else ""
    lead = f"Of what was paid, {_working_share(parts)} bought work that counts.{more}"
    known = [(part.class_, part.name) for part in parts if part.value > 0]
    return section("Where the money went", paragraph(lead, "lead"), figure(bar, known), table(heads, rows, foot))


def _working_share(parts: list[Part]) -> str:
    total = sum(part.value for part in parts)
    return f"{parts[0].value / total:.1%}" if total > 0 else "nothing"


def _over_time(report: Report, markets: tuple[MarketCost, ...]) -> str:
    title = "Cost over time, by market"
    if not report.rows:
        return section(title, paragraph("Nothing was paid."))
    keys = list(dict.fromkeys((one.class_, one.name) for one in markets))
    if len(report.stories) == 1:
        layers = cumulative_of(report.rows, markets)
        alt = f"What {report.stories[0].run} paid up to each moment, {words.money(report.whole.total)} in all"
        lead = "What had been paid up to each moment of the run, net of refunds."
        return section(title, paragraph(lead, "lead"), figure(both(lambda frame: cumulative(frame, alt, layers)), keys))
    bars, unit = columns_of(report, markets)
    alt = f"What each {unit} cost, by market: {len(bars)} bars"
    lead = f"Each bar is a {unit}, at the date on which it began on this computer's clock."
    rows = [(bar.name, f"${bar.value:,.4f}") for bar in bars]
    figures = table((Head(unit, is_text=True), Head("paid")), rows)
    picture = both(lambda frame: columns(frame, alt, bars))
    return section(title, paragraph(lead, "lead"), figure(picture, keys, figures))


def _markets(report: Report, markets: tuple[MarketCost, ...]) -> str:
    digits = words.digits_of(report)
    heads = (
        Head("market", is_text=True),
        Head("machine-hours", is_less=True),
        Head("paid an hour"),
        Head("listed an hour", is_less=True),
        Head("evictions"),
        Head("refunded", is_less=True),
        Head("on demand", is_less=True),
        Head("paid"),
    )
    rows = [
        (
            str(one.market),
            words.hours(one.machine_micros),
            words.UNKNOWN if one.price is None else f"${one.price:.4f}",
            words.UNKNOWN if one.listed is None else f"${one.listed:.4f}",
            words.whole_number(one.evictions),
            words.money(one.refunded, digits),
            words.money(one.on_demand, digits),
            words.money(one.paid, digits),
        )
        for one in markets
    ]
    return section("Markets", table(heads, rows))


def _groups(report: Report) -> str:
    """The grouping that was asked for, where another part of the page does not show it already."""
    if report.by in ((By.MARKET,), (By.RUN,)) or (report.by == (By.JOB,) and len(report.groups) == 1):
        return ""
    digits = words.digits_of(report)
    heads = (
        *(Head(by.value, is_text=True) for by in report.by),
        Head("runs", is_less=True),
        Head("evictions", is_less=True),
        Head("lost work", is_less=True),
        Head("on demand", is_less=True),
        Head("paid"),
        Head("saved"),
    )
    rows = [
        (
            *group.key.values(),
            words.whole_number(group.figures.runs),
            words.whole_number(group.figures.evictions),
            words.money(group.figures.lost_work, digits),
            words.money(group.figures.on_demand, digits),
            words.money(group.figures.total, digits) + (" *" if group.figures.going_on else ""),
            words.percent(group.figures.saved_pct),
        )
        for group in report.groups
    ]
    return section(f"By {' and '.join(by.value for by in report.by)}", table(heads, rows), is_long=len(rows) > 12)


def _foot(report: Report) -> str:
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>" for name, meaning in _TERMS)
    settled = sum(row.settled for row in report.rows)
    made = (
        f"Made on {words.minute(report.made_at)} from {len(report.rows):,} rows of the ledger, {settled:,} of them"
        " settled. Amounts are summed exactly and rounded once, when they are shown."
    )
    return section("What the words mean", f'<dl class="terms">{terms}</dl>') + f"<footer>{paragraph(made)}</footer>"
