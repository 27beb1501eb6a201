"""A cost report in a few lines, for the message after a night."""

from dataclasses import dataclass
from pathlib import Path

from spotctl.log.ledger.rows import Use
from spotctl.show.costs import formatting as fmt
from spotctl.show.costs.answers import escaped
from spotctl.show.costs.cost import Report
from spotctl.show.costs.figures import Figures


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
    in_short = _uses(whole, digits)
    lines = [
        (fmt.paid(report), _paid(whole, digits)),
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


def _paid(whole: Figures, digits: int) -> str:
    paid = fmt.total(whole, digits)
    return f"{paid} so far, {fmt.money(whole.unsettled, digits)} of it may change" if whole.running else paid
