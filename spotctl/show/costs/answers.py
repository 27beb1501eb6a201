"""A cost report as JSON, CSV and Markdown."""

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spotctl.log.ledger.rows import Use
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
from spotctl.show.costs.cost import Group, Report, UnitTrend, trends_of
from spotctl.show.costs.figures import Figures, usd
from spotctl.show.costs.periods import Month


def as_json(report: Report) -> dict[str, Any]:
    """The JSON of `spotctl report cost --json`. Unknown values are null; keys may be added but never change.

    Fields:
        -> JSON_WHOLE
        trend[].change_pct: change from before to the latest runs in percent
        months_of_tags: the current month of each tag that has a budget of its own
        months_of_tags[].tag: the tag, as in user=ada
        months_of_tags[] -> _month
        corrections: runs whose prices were corrected after they had ended; absent if there are none
        corrections[] -> spotctl.show.costs.later_corrections:correction_json
    """
    return {
        **{column.name: column.json(report.whole) for column in JSON_WHOLE},
        "saving": saving(report.whole),  #: where the difference to on-demand prices comes from -> saving
        #: cost of a unit of work, by job with two successful runs or more, each -> UnitTrend
        "trend": [_trend(trend) for trend in trends_of(report)],
        "month": _month(report.month),  #: the current month -> _month
        "months_of_tags": [{"tag": month.tag, **_month(month)} for month in report.months_of_tags],
        "replayed": _replayed(report),  #: runs on the local market, which bills nothing -> _replayed
        "time_zone": str(report.zone),  #: time zone of days and months in groups
        "groups": [_group(group) for group in report.groups],  #: the report by the values of --by, each -> _group
    }


def _trend(trend: UnitTrend) -> dict[str, Any]:
    return {**asdict(trend), "change_pct": trend.change_pct}


def _month(month: Month) -> dict[str, Any]:
    """The present month: what it has cost, and what it is expected to cost, without runs on the local market."""
    return {
        "month": month.name,  #: the month, as in 2026-06
        "paid_usd": usd(month.paid),  #: cost so far
        "forecast_usd": usd(month.forecast),  #: expected cost of the whole month
        "forecast_low_usd": usd(month.low),  #: lower end of the 80% interval of the forecast
        "forecast_high_usd": usd(month.high),  #: upper end of the 80% interval of the forecast
        "budget_usd": month.budget,  #: monthly budget; null if none is set
        "paid_low_usd": usd(month.paid - month.doubtful),  #: the least that it has cost so far
        #: the most that it has cost so far; null if that is unknown, because rows or prices are lost
        "paid_high_usd": None if month.is_least else usd(month.paid),
    }


def _replayed(report: Report) -> dict[str, Any]:
    """The runs on the local market. No other amount contains theirs, unless the report is on them alone."""
    return {
        "reported": report.is_replayed,  #: whether the report is on these runs: then nothing in it was billed
        "runs": report.replayed.runs,  #: number of these runs in the period
        "total_usd": usd(report.replayed.total),  #: their cost at the replayed prices
        #: cost of the same work on on-demand machines at the replayed prices
        "on_demand_usd": usd(report.replayed.on_demand),
    }


def saving(figures: Figures) -> dict[str, Any]:
    """The on-demand cost of the same work with its interval, and the steps from there to what was paid.

    Fields:
        steps: amounts that lead from the on-demand cost to the cost paid
        steps[].name: what saved money, or cost it
        steps[].usd: amount saved; negative if it cost money
    """
    return {
        "on_demand_usd": usd(figures.on_demand),  #: on-demand cost of the same work
        "on_demand_low_usd": usd(figures.on_demand_low),  #: lower end of its interval
        "on_demand_high_usd": usd(figures.on_demand_high),  #: upper end of its interval
        "steps": [{"name": name, "usd": usd(amount)} for name, amount in figures.steps],
        "paid_usd": usd(figures.total),  #: cost paid
    }


def _group(group: Group) -> dict[str, Any]:
    """The runs with the same values of --by.

    Fields:
        job: value of --by job
        run: value of --by run
        cloud: value of --by cloud
        region: value of --by region
        type: value of --by type
        market: value of --by market
        pricing: value of --by pricing
        kind: value of --by kind
        day: value of --by day
        month: value of --by month
        tag: value of --by tag
        -> JSON_GROUP
        saving: where the difference to on-demand prices comes from
        saving -> saving
    """
    key = {by.value: value for by, value in group.key.items()}
    return {
        **key,
        **{column.name: column.json(group.figures) for column in JSON_GROUP},
        "saving": saving(group.figures),
    }


def as_csv(report: Report) -> str:
    """A line per group. Amounts have all nine decimals, unknown values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([by.value for by in report.by] + ([column.name for column in JSON_GROUP] if report.groups else []))
    for group in report.groups:
        writer.writerow([*group.key.values(), *(column.csv(group.figures) for column in JSON_GROUP)])
    return text.getvalue()


def as_markdown(report: Report) -> str:
    """The headline and a table of the groups, for a chat or a ticket."""
    keys = [by.value for by in report.by]
    names = [*keys, *headings(MARKDOWN, report)]
    remarks = [escaped(remark) for remark in (*doubts(report), left_out(report), clock(report)) if remark]
    lines = [
        f"**{escaped(headline(report))}**",
        "",
        span_of(report),
        "",
        *(line for remark in remarks for line in (remark, "")),
        "| " + " | ".join(names) + " |",
        "| " + " | ".join([":--"] * len(keys) + ["--:"] * len(MARKDOWN)) + " |",
        *(f"| {' | '.join(_markdown_cells(group, digits_of(report)))} |" for group in report.groups),
    ]
    return "\n".join(lines) + "\n"


def _markdown_cells(group: Group, digits: int) -> list[str]:
    key = [escaped(value) for value in group.key.values()]
    key[-1] += " (running)" if group.figures.running else ""
    return [*key, *texts(MARKDOWN, group.figures, digits)]


def escaped(text: str) -> str:
    """Text that reads the same in Markdown and cannot become a link, a cell or a tag."""
    return "".join(f"\\{char}" if char in r"\`*_[]|~" else _ENTITIES.get(char, char) for char in text)


_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


@dataclass(frozen=True, slots=True)
class CostSummary:
    """A title, the uses of the money in one sentence, and lines with a name and its text."""

    title: str
    in_short: str
    lines: tuple[tuple[str, str], ...]

    @property
    def markdown(self) -> str:
        """The summary as Markdown; text from outside is escaped."""
        lines = [f"- {escaped(name)}: {escaped(text)}" for name, text in self.lines]
        return "\n".join([f"**{escaped(self.title)}**", "", *lines])


def cost_summary(report: Report, page: Path | None = None) -> CostSummary:
    """The report for a message; `page` is the path of its HTML, if that was written."""
    whole, digits = report.whole, fmt.digits_of(report)
    in_short, paid = _uses(whole, digits), fmt.total(whole, digits)
    if whole.running:
        paid += f" so far, {fmt.money(whole.unsettled, digits)} of it may change"
    lines = [
        (fmt.paid(report), paid),
        ("on demand", f"{fmt.money(whole.on_demand, digits)} for the same work"),
        ("spent on", in_short),
        ("evictions", fmt.whole_number(whole.evictions)),
    ]
    if whole.usd_per_work is not None:
        lines.append(
            ("per clock", f"{fmt.per_work(whole.usd_per_work)}, {fmt.whole_number(whole.work)} clocks in total")
        )
    if report.is_replayed:
        lines.append(("market", "local: no real money was spent"))
    if remark := fmt.left_out(report):
        lines.append(("replayed", remark))
    if page is not None:
        lines.append(("report", str(page)))
    return CostSummary(fmt.headline(report), in_short, tuple(lines))


def _uses(whole: Figures, digits: int) -> str:
    if whole.total <= 0:
        return "nothing was paid"
    amounts = [
        (whole.uses.get(Use.WORKING, 0), "work"),
        (whole.lost_work, "redoing lost work"),
        (whole.waiting, "not working"),
        (whole.other_charges, "disks, addresses and traffic"),
    ]
    shares = [f"{amount / whole.total:.0%} {name}" for amount, name in amounts if amount / whole.total >= 0.005]
    free = f"; {fmt.money(whole.free, digits)} was refunded" if whole.free else ""
    return ", ".join(shares) + free
