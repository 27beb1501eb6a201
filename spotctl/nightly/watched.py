"""A scheduled start that cannot fail silently: its begin, its end and every failure are recorded and reported."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import tzinfo

from spotctl.home.errors import BadRequest
from spotctl.log.outcomes import DONE, STOPPED, AlreadyRunning
from spotctl.nightly.hours import day_of
from spotctl.nightly.night_log import NightLog
from spotctl.nightly.night_message import NightResult, failure_message
from spotctl.nightly.reporter import NightReporter
from spotctl.nightly.state_dir import StateDir
from spotctl.nightly.tonight import StartReport
from spotctl.run.notify.messages import secret_values


def run_watched(
    state_dir: StateDir, night: Callable[[], StartReport], clock: Callable[[], int], zone: tzinfo
) -> StartReport:
    """Runs a night. A start that the script supervises has its line in the record already."""
    number = supervised = int(os.environ.pop("SPOTCTL_NIGHT_START", "0"))

    def end(*, reported: bool, good: bool, why: str = "") -> None:
        # A supervised start has ended when the script sees its process end.
        status = None if supervised else int(not good)
        state_dir.starts.note(number, clock(), status, reported=reported, why=why)

    try:
        if not supervised:
            number = state_dir.starts.begin(clock()).number
        report = night()
        end(reported=report.delivered, good=report.result.outcome in (DONE, STOPPED))
    except AlreadyRunning:
        end(reported=True, good=False)
        raise
    except Exception as error:
        delivered, why = _report(state_dir, NightResult.of_error(error, began=False), clock, zone)
        # The error is what the caller has to see, also if it cannot be recorded.
        with suppress(OSError, BadRequest):
            end(reported=delivered, good=False, why=why)
        raise
    return report


def _report(state_dir: StateDir, result: NightResult, clock: Callable[[], int], zone: tzinfo) -> tuple[bool, str]:
    """Sends the message about a failure. Returns whether it was delivered, and its text without secrets."""
    nightly = None
    with suppress(BadRequest, OSError):
        nightly = state_dir.installed
    day = day_of(clock(), zone)
    log = NightLog(state_dir.logs, day, zone, clock)
    reporter = NightReporter(state_dir, nightly, log)
    message = failure_message(state_dir.name, day, result, str(log.path))
    if (spec := reporter.job()) is not None:
        message = message.without(secret_values(spec, os.environ))
    reporter.send(message, "/fail")
    return reporter.delivered, message.lines["What happened"]
