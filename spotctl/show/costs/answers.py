"""A cost report as JSON, CSV and Markdown."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing_data.units import format_time
from spotctl.log.ledger.account import RunTimeline
from spotctl.log.ledger.rows import Use, usd
from spotctl.show import columns as kit
from spotctl.show.columns import Column
from spotctl.show.costs import columns as fmt
from spotctl.show.costs.columns import (
    JSON_GROUP,
    JSON_WHOLE,
    MARKDOWN,
    clock,
    digits_of,
    doubts,
    headings,
    headline,
    left_out,
    span_of,
    texts,
)
from spotctl.show.costs.cost import Figures, Report, UnitTrend, trends_of
from spotctl.show.costs.periods import By, Grouping, Month

if TYPE_CHECKING:
    from spotctl.show.costs.later_corrections import CorrectedBill


SAVING: tuple[Column[Figures], ...] = (
    Column(
        "on_demand_usd",
        "on-demand cost of the same work; null if it is unknown",
        "on_demand",
        form=usd,
    ),
    Column("on_demand_low_usd", "lower end of its interval", "on_demand_low", form=usd),
    Column("on_demand_high_usd", "upper end of its interval", "on_demand_high", form=usd),
    Column(
        "steps",
        "amounts that lead from the on-demand cost to the cost paid",
        each=(
            Column("name", "what saved money, or cost it", "0"),
            Column("usd", "amount saved; negative if it cost money", "1", form=usd),
        ),
    ),
    Column("paid_usd", "cost paid", "total", form=usd),
    Column("on_demand_unknown", "why the on-demand cost is unknown; empty if it is known"),
)
"""The on-demand cost of the same work with its interval, and the steps from there to what was
paid."""

MONTH: tuple[Column[Month], ...] = (
    Column("month", "the month, as in 2026-06", "name"),
    Column("paid_usd", "cost so far", "paid", form=usd),
    Column("forecast_usd", "expected cost of the whole month", "forecast", form=usd),
    Column("forecast_low_usd", "lower end of the 80% interval of the forecast", "low", form=usd),
    Column("forecast_high_usd", "upper end of the 80% interval of the forecast", "high", form=usd),
    Column("budget_usd", "monthly budget; null if none is set", "budget"),
    Column(
        "paid_low_usd",
        "the least that it has cost so far",
        lambda month: usd(month.paid - month.doubtful),
    ),
    Column(
        "paid_high_usd",
        "the most that it has cost so far; null if that is unknown, because rows or prices are "
        "lost",
        lambda month: None if month.is_least else usd(month.paid),
    ),
)
"""The present month: what it has cost, and what it is expected to cost, without runs on the local
market."""

REPLAYED: tuple[Column[Report], ...] = (
    Column(
        "reported",
        "whether the report is on these runs: then nothing in it was billed",
        "is_replayed",
    ),
    Column("runs", "number of these runs in the period", "replayed.runs"),
    Column("total_usd", "their cost at the replayed prices", "replayed.total", form=usd),
    Column(
        "on_demand_usd",
        "cost of the same work on on-demand machines at the replayed prices; null if it is unknown",
        "replayed.on_demand",
        form=usd,
    ),
)
"""The runs on the local market. No other amount contains theirs, unless the report is on them
alone."""

_FIGURES = "\0"
"""Where the row of a group has its figures: no tag has this name."""
_SAVING = "where the difference to on-demand prices comes from"


def _departures(report: Report) -> list[RunTimeline]:
    """The runs that departed from their plans."""
    return [run for run in report.runs if run.left_plan]


def _group_rows(report: Report) -> list[dict[str, Any]]:
    """The groups of a report: a value for each property of `--by`, and the figures."""
    rows = list[dict[str, Any]]()
    for group in report.groups:
        values = {by.value: value for by, value in group.key.items()}
        rows.append({**values, _FIGURES: group.figures})

    return rows


_WHOLE: tuple[Column[Report], ...] = (
    *(column.of("whole") for column in JSON_WHOLE),
    Column("saving", _SAVING, "whole", of=SAVING),
    Column(
        "trend",
        "cost of a unit of work, by job with two successful runs or more",
        trends_of,
        each=(UnitTrend, Column("change_pct", "change from before to the latest runs in percent")),
    ),
    Column(
        "left_plan",
        "runs that departed from their plans",
        _departures,
        each=(
            Column("run", "id of the run"),
            Column(
                "left_plan",
                "the purchases that the plan did not begin with, and why it did not",
            ),
        ),
    ),
    Column("month", "the current month", of=MONTH),
    Column(
        "months_of_tags",
        "the current month of each tag that has a budget of its own",
        each=(Column("tag", "the tag, as in user=ada"), *MONTH),
    ),
    Column("replayed", "runs on the local market, which bills nothing", "", of=REPLAYED),
    Column("time_zone", "time zone of days and months in groups", "zone", form=str),
)
_OF_GROUP: tuple[Column[Mapping[str, Any]], ...] = (
    *(column.of(_FIGURES) for column in JSON_GROUP),
    Column("saving", _SAVING, _FIGURES, of=SAVING),
)


def _fields(by: Iterable[Grouping]) -> tuple[Column[Report], ...]:
    """The JSON fields of a report whose groups have these properties."""
    keys: list[Column[Any]] = [Column(each.value, f"value of --by {each.value}") for each in by]
    group = (*keys, *_OF_GROUP)
    return (
        *_WHOLE,
        Column("groups", "the report by the values of --by", _group_rows, each=group),
    )


CORRECTIONS: tuple[Column[Any], ...] = (
    Column(
        "corrections",
        "runs whose prices were corrected after they had ended; absent if there are none",
        each=(
            Column("run", "id of the run"),
            Column(
                "made",
                "moment of the last of these corrections",
                form=format_time,
            ),
            Column(
                "change_usd",
                "how they would change the cost of the run, which stays as it was billed",
            ),
        ),
        optional=True,
    ),
)

REPORT = (*_fields(By), *CORRECTIONS)
"""The JSON of `spotctl report cost --json`. Unknown values are null; keys may be added but never
change."""


def as_json(report: Report, corrections: "Sequence[CorrectedBill]" = ()) -> dict[str, Any]:
    """The JSON of `spotctl report cost --json`, with later corrections of the reported runs."""
    return kit.as_json(_fields(report.by), report) | kit.as_json(
        CORRECTIONS, {"corrections": corrections or None}
    )


def as_csv(report: Report) -> str:
    """A line per group. Amounts have all nine decimals, unknown values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [by.value for by in report.by]
    if report.groups:
        names += [column.name for column in JSON_GROUP]
    writer.writerow(names)

    for group in report.groups:
        cells = [column.csv(group.figures) for column in JSON_GROUP]
        writer.writerow([*group.key.values(), *cells])
    return text.getvalue()


def as_markdown(report: Report) -> str:
    """The headline and a table of the groups, for a chat or a ticket."""
    keys = [by.value for by in report.by]
    lines = [f"**{escaped(headline(report))}**", "", span_of(report), ""]
    for remark in (*doubts(report), left_out(report), clock(report)):
        if remark:
            lines += [escaped(remark), ""]

    rows = [[*keys, *headings(MARKDOWN, report)]]
    rows.append([":--"] * len(keys) + ["--:"] * len(MARKDOWN))
    digits = digits_of(report)
    for group in report.groups:
        key = [escaped(value) for value in group.key.values()]
        key[-1] += " (running)" if group.figures.running else ""
        rows.append([*key, *texts(MARKDOWN, group.figures, digits)])

    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that reads the same in Markdown and cannot become a link, a cell or a tag."""
    safe = ""
    for char in text:
        if char in r"\`*_[]|~":
            safe += f"\\{char}"
        else:
            safe += _ENTITIES.get(char, char)
    return safe


_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def cost_summary(report: Report, page: Path | None = None) -> tuple[str, str]:
    """The report for a message: the uses of the money in one sentence, and Markdown with a title
    and a line for each figure. `page` is the path of the report's HTML, if that was written."""
    whole, digits = report.whole, fmt.digits_of(report)
    in_short, paid = _uses(whole, digits), fmt.total(whole, digits)
    if whole.running:
        unsettled = fmt.money(whole.unsettled, digits)
        paid += f" so far, {unsettled} of it may change"
    lines = [
        (fmt.paid(report), paid),
        ("on demand", fmt.on_demand(whole, digits)),
        ("spent on", in_short),
        ("evictions", fmt.whole_number(whole.evictions)),
    ]

    if whole.usd_per_work is not None:
        each, clocks = fmt.per_work(whole.usd_per_work), fmt.whole_number(whole.work)
        lines.append(("per clock", f"{each}, {clocks} clocks in total"))

    if report.is_replayed:
        lines.append(("market", "local: no real money was spent"))
    remark = fmt.left_out(report)
    if remark:
        lines.append(("replayed", remark))
    if page is not None:
        lines.append(("report", str(page)))

    title = escaped(fmt.headline(report))
    markdown = f"**{title}**\n"
    for name, text in lines:
        markdown += f"\n- {escaped(name)}: {escaped(text)}"
    return in_short, markdown


def _uses(whole: Figures, digits: int) -> str:
    if whole.total <= 0:
        return "nothing was paid"

    amounts = {
        "work": whole.uses.get(Use.WORKING, 0),
        "redoing lost work": whole.lost_work,
        "not working": whole.waiting - whole.uses.get(Use.UNUSED, 0),
        "rest of paid hours": whole.uses.get(Use.UNUSED, 0),
        "disks, addresses and traffic": whole.other_charges,
    }

    shares = list[str]()
    for name, amount in amounts.items():
        share = amount / whole.total
        if share >= 0.005:
            shares.append(f"{share:.0%} {name}")

    text = ", ".join(shares)
    if whole.free:
        text += f"; {fmt.money(whole.free, digits)} was refunded"
    return text
