"""The cost report of one night: an HTML page, and the same figures as JSON, which the night's
answer has.
"""

from pathlib import Path
from typing import Any

from spotctl.home.config import Settings
from spotctl.show.columns import Column
from spotctl.show.costs import answers, page
from spotctl.show.costs.accounts import gather, write
from spotctl.show.costs.periods import By, Period

NIGHT: tuple[Column[Any], ...] = (
    Column("outcome", "how the night ended"),
    Column("message", "the same in words"),
    Column("log", "log file of the night"),
    Column("event", "`night ended`"),
    Column("name", "name of the job"),
    Column("night", "day on which the night began"),
    Column("runs", "runs of the night"),
    Column("cost_usd", "cost of the night; null if unknown"),
    Column("on_demand_usd", "cost of the same work on on-demand machines; null if it is unknown"),
    Column(
        "replayed",
        "whether the night was on the local market: then these amounts were replayed, and nothing "
        "was billed",
    ),
    Column("evictions", "number of evictions"),
    Column("left_running", "number of machines still held"),
    Column("model", "file of the model; null without one"),
    Column("report", "page with the cost report; null if there is none"),
    Column(
        "cost_report",
        "cost report of the night; null if nothing was rented",
        of=(
            *answers.REPORT,
            Column("in_short", "what the money was spent on, in a sentence"),
            Column("markdown", "the report as a Markdown table"),
        ),
    ),
)
"""The JSON of `spotctl nightly run`: the end of the night, and the facts of its message."""


def write_report(settings: Settings, job: str, since: int, now: int, path: Path) -> dict[str, Any]:
    """Writes the page on the runs of a job from `since` on.

    Returns the JSON of `report cost --json` with a summary: `in_short` in a sentence, `markdown`
    for a chat.
    """
    period = Period(since)
    report = gather(settings, (job,), period, (By.RUN,), now)
    if not report.runs:
        # Earlier nights were on a cloud, this one on the local market.
        report = gather(settings, (job,), period, (By.RUN,), now, local=True)

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, [page.html(report)])
    in_short, markdown = answers.cost_summary(report, path)
    return {**answers.as_json(report), "in_short": in_short, "markdown": markdown}
