"""The cost report of one night: a page beside its log, and the same figures for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spotctl.config import Settings
from spotctl.reports import answers, page, summary
from spotctl.reports.cost import By
from spotctl.reports.gather import gathered, write


def write_report(settings: Settings, job: str, since: int, now: int, path: Path) -> dict[str, Any]:
    """Writes the page about a job's runs that began since a moment.

    The answer is what `report cost --json` says, with a summary: `in_short` in words, `markdown` for a chat.
    """
    report = gathered(settings, (job,), since, (By.RUN,), now)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, page.html(report))
    told = summary(report, path)
    return {**answers.as_json(report), "in_short": told.in_short, "markdown": told.markdown}
