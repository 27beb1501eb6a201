"""The problem of a nightly job, if it has one, for monitoring."""

from datetime import tzinfo

from pricing_data.units import MINUTE
from spotctl.log.outcomes import DONE, STOPPED
from spotctl.nightly.hours import Hours, clock_text
from spotctl.nightly.state_dir import StateDir

GRACE = 15 * MINUTE
"""How late a timer may be: the computer may have been busy, or have just woken up."""


def problem(state_dir: StateDir, hours: Hours, now: int, zone: tzinfo) -> str:
    """A night that did not start, was interrupted or did not end well; empty if all is well."""
    last, night = state_dir.last, hours.night(now, zone)
    if state_dir.is_running:
        return ""
    if last is not None and not last.reported:
        return f"the night of {last.day.isoformat()} was interrupted; spotctl nightly run {state_dir.name} resumes it"
    begun = last is not None and last.begin >= night.begin
    expected = state_dir.installed_at <= night.begin and now >= night.begin + GRACE
    if expected and not begun:
        return f"the night of {clock_text(night.begin, zone)} did not start"
    if last is not None and last.outcome not in (DONE, STOPPED):
        return f"the night of {last.day.isoformat()} ended with: {last.outcome}"
    return ""
