"""A report in a few lines: for a message, and for the end of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spotctl.ledger.rows import Use
from spotctl.reports import words
from spotctl.reports.answers import escaped
from spotctl.reports.cost import Figures, Report


@dataclass(frozen=True, slots=True)
class Summary:
    """What a message says of costs: a title, where the money went, all as pairs of a name and a text, and the page to
    attach."""

    title: str
    in_short: str
    lines: tuple[tuple[str, str], ...]
    page: Path | None = None

    @property
    def text(self) -> str:
        """As plain text."""
        width = max(len(name) for name, _ in self.lines)
        return "\n".join([self.title, *(f"  {name:<{width}}  {said}" for name, said in self.lines)])

    @property
    def markdown(self) -> str:
        """As Markdown; what comes from outside cannot become more than text in it."""
        lines = [f"- {escaped(name)}: {escaped(said)}" for name, said in self.lines]
        return "\n".join([f"**{escaped(self.title)}**", "", *lines])


def summary(report: Report, page: Path | None = None) -> Summary:
    """The report for a notification; `page` is where its HTML lies, if it was written."""
    whole, digits = report.whole, words.digits_of(report)
    in_short = _where_it_went(whole, digits)
    lines = [
        ("paid", _paid(whole, digits)),
        ("on demand", f"{words.money(whole.on_demand, digits)} for the same work"),
        ("of it", in_short),
        ("evictions", words.whole_number(whole.evictions)),
    ]
    if whole.usd_per_work is not None:
        lines.append(("per work", f"{words.per_work(whole.usd_per_work)}, {words.whole_number(whole.work)} in all"))
    if report.is_replayed:
        lines.append(("market", "the one of this computer: nobody was charged"))
    if page is not None:
        lines.append(("report", str(page)))
    return Summary(words.headline(report), in_short, tuple(lines), page)


def _where_it_went(whole: Figures, digits: int) -> str:
    """What was paid, by what machines did."""
    if whole.total <= 0:
        return "nothing was paid"
    shares = [
        (whole.uses.get(Use.WORKING, 0), "work"),
        (whole.lost_work, "work done again"),
        (whole.waiting, "waiting"),
        (whole.besides, "disks, addresses and traffic"),
    ]
    told = [f"{amount / whole.total:.0%} {name}" for amount, name in shares if amount / whole.total >= 0.005]
    free = f"; {words.money(whole.free, digits)} was refunded" if whole.free else ""
    return ", ".join(told) + free


def _paid(whole: Figures, digits: int) -> str:
    paid = words.money(whole.total, digits)
    return f"{paid} so far, {words.money(whole.unsettled, digits)} of it can change" if whole.going_on else paid
