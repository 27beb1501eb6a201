"""The cost report of one night: an HTML page, and the same figures as JSON."""

from pathlib import Path
from typing import Any

from spotctl.home.config import Settings
from spotctl.show.costs import answers, page
from spotctl.show.costs.gather import gather, write
from spotctl.show.costs.grouping import By
from spotctl.show.costs.periods import Period


def write_report(settings: Settings, job: str, since: int, now: int, path: Path) -> dict[str, Any]:
    """Writes the page on the runs of a job from `since` on.

    Returns the JSON of `report cost --json` with a summary: `in_short` in a sentence, `markdown` for a chat.
    """
    period = Period(since)
    report = gather(settings, (job,), period, (By.RUN,), now)
    if not report.runs:
        # Earlier nights were on a cloud, this one on the local market.
        report = gather(settings, (job,), period, (By.RUN,), now, local=True)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, [page.html(report)])
    summary = answers.cost_summary(report, path)
    return {**answers.as_json(report), "in_short": summary.in_short, "markdown": summary.markdown}
