"""A cost report as JSON, CSV and Markdown. The keys of the JSON are a contract: they are added to, never changed."""

from __future__ import annotations

import csv
import io
from typing import Any

from spotctl.reports.cost import Figures, Group, Report, usd
from spotctl.reports.words import digits_of, headline, money, per_work, percent, span_of, whole_number

_DOLLARS = ("total_usd", "on_demand_usd", "free_usd", "lost_work_usd", "waiting_usd", "unsettled_usd")


def as_json(report: Report) -> dict[str, Any]:
    """What `report cost --json` prints. What nobody knows is null."""
    return {**_figures(report.whole), "groups": [_group(one) for one in report.groups]}


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "total_usd": usd(figures.total),
        "on_demand_usd": usd(figures.on_demand),
        "saved_pct": figures.saved_pct,
        "free_usd": usd(figures.free),
        "lost_work_usd": usd(figures.lost_work),
        "waiting_usd": usd(figures.waiting),
        "evictions": figures.evictions,
        "work": figures.work,
        "usd_per_work": figures.usd_per_work,
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        **{by.value: value for by, value in group.key.items()},
        **_figures(group.figures),
        "runs": group.figures.runs,
        "running": group.figures.going_on,
        "unsettled_usd": usd(group.figures.unsettled),
    }


def as_csv(report: Report) -> str:
    """A line a group: amounts with all nine decimals, nothing where nothing is known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [by.value for by in report.by]
    rows = [_group(group) for group in report.groups]
    columns = list(rows[0]) if rows else names
    writer.writerow(columns)
    for row in rows:
        writer.writerow(_cell(name, row[name]) for name in columns)
    return text.getvalue()


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    return f"{value:.9f}" if name in _DOLLARS else str(value)


def as_markdown(report: Report) -> str:
    """The headline and a table of the groups, for a chat or a ticket."""
    names = [by.value for by in report.by]
    columns = [*names, "paid", "on demand", "saved", "lost work", "waiting", "refunded", "evictions", "per work"]
    lines = [
        f"**{escaped(headline(report))}**",
        "",
        span_of(report),
        "",
        "| " + " | ".join(columns) + " |",
        "| " + " | ".join([":--"] * len(names) + ["--:"] * (len(columns) - len(names))) + " |",
        *(f"| {' | '.join(_markdown_cells(group, digits_of(report)))} |" for group in report.groups),
    ]
    return "\n".join(lines) + "\n"


def _markdown_cells(group: Group, digits: int) -> list[str]:
    figures = group.figures
    mark = " (running)" if figures.going_on else ""
    key = [escaped(value) for value in group.key.values()]
    return [
        *key[:-1],
        key[-1] + mark,
        *(money(amount, digits) for amount in (figures.total, figures.on_demand)),
        percent(figures.saved_pct),
        *(money(amount, digits) for amount in (figures.lost_work, figures.waiting, figures.free)),
        whole_number(figures.evictions),
        per_work(figures.usd_per_work),
    ]


def escaped(text: str) -> str:
    """Text that says the same in Markdown, and cannot become a link, a cell or a tag."""
    return "".join(f"\\{char}" if char in r"\`*_[]|~" else _ENTITIES.get(char, char) for char in text)


_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
