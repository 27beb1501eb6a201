"""Figures of a report as words, the same in every format."""

from __future__ import annotations

from pricing_data.units import DAY, HOUR, MINUTE, to_datetime
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR
from spotctl.reports.cost import Report, usd
from spotctl.reports.run_timeline import RunTimeline

UNKNOWN = "-"


def money(amount: int, digits: int = 2) -> str:
    """Nano-dollar-seconds as dollars with so many decimals; what is smaller than they show is said to be."""
    return dollars(usd(amount), digits)


def dollars(value: float, digits: int = 2) -> str:
    """Dollars with so many decimals; what is smaller than they show is said to be."""
    sign, size = "-" if value < 0 else "", abs(value)
    least = 10.0**-digits
    if 0 < size < least / 2:
        return f"<${least:.{digits}f}" if not sign else f">-${least:.{digits}f}"
    return f"{sign}${size:,.{digits}f}"


def digits_of(report: Report) -> int:
    """Decimals that suit all amounts of a report: cents, and finer where cents would hide most of it."""
    return 2 if report.whole.total >= NANO_SECONDS_PER_DOLLAR else 4


def percent(value: float | None) -> str:
    """A share that is in percent already."""
    return UNKNOWN if value is None else f"{value:.1f}%"


def whole_number(value: int | None) -> str:
    """With thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def per_work(value: float | None) -> str:
    """Dollars for a unit of work, with three digits that count."""
    return UNKNOWN if value is None else f"${value:.3g}" if 0.001 <= value < 1000 else f"${value:.2e}"


def span(micros: int) -> str:
    """A length of time in words: `3 d 4 h`, `5 h 12 min`, `8 min`."""
    days, rest = divmod(max(micros, 0), DAY)
    hours, rest = divmod(rest, HOUR)
    minutes = rest // MINUTE
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else "under a minute"


def hours(micros: int) -> str:
    """Machine-hours."""
    return f"{micros / HOUR:,.1f}"


def day(at: int) -> str:
    """A date: `3 Feb 2026`."""
    moment = to_datetime(at)
    return f"{moment.day} {moment:%b %Y}"


def minute(at: int) -> str:
    """A moment to the minute: `3 Feb 2026, 04:05 UTC`."""
    return f"{day(at)}, {to_datetime(at):%H:%M} UTC"


def runs(count: int) -> str:
    """`1 run`, `3 runs`."""
    return f"{count:,} run{'' if count == 1 else 's'}"


def outcome(story: RunTimeline) -> str:
    """How a run ended, or that it goes on."""
    return "running" if story.outcome is None else story.outcome


def subject(report: Report) -> str:
    """What the report is about: `quickstart`, `3 jobs`."""
    jobs = sorted({story.job for story in report.stories})
    return jobs[0] if len(jobs) == 1 else f"{len(jobs)} jobs"


def headline(report: Report) -> str:
    """The report in a sentence."""
    whole, digits = report.whole, digits_of(report)
    so_far = " so far" if whole.going_on else ""
    text = f"{subject(report)}: {money(whole.total, digits)} paid{so_far} for {runs(whole.runs)}"
    if whole.saved_pct is None:
        return text
    if whole.saved < 0:
        return f"{text}, {money(-whole.saved, digits)} more than on demand ({money(whole.on_demand, digits)})"
    return f"{text}, {percent(whole.saved_pct)} below on demand ({money(whole.on_demand, digits)})"


def span_of(report: Report) -> str:
    """When it happened, by which clock, and whether anything was really paid."""
    began = [story.wall_began for story in report.stories]
    if len(report.stories) == 1:
        ended = report.stories[0].wall_ended
        when = f"Began {minute(began[0])}, {'goes on' if ended is None else f'ended {minute(ended)}'}."
    else:
        when = f"Runs that began from {minute(min(began))} to {minute(max(began))}."
    if not report.is_replayed:
        return when
    return f"{when} The market of this computer replays prices of a past, and rows carry its clock: nobody was charged."
