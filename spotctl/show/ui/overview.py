"""The first page of `spotctl ui`: the latest run of every job, jobs that wait, and nights. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pricing_data.units import counted, usd_text
from spotctl.log.outcomes import DONE
from spotctl.show.costs.html import Html, el
from spotctl.show.costs.page_parts import ColumnHead, paragraph, section, table
from spotctl.show.phrases import spending_text
from spotctl.show.runs.standing import Standing, shown_loss
from spotctl.show.ui.page_shell import renewed_page

ACTIVE = ("running", "stopping", "interrupted")
MOST_ENDED = 100
"""Ended runs that are shown unless all are asked for."""

_HEADS = (
    ColumnHead("job", is_text=True),
    ColumnHead("state", is_text=True),
    ColumnHead("machines"),
    ColumnHead("progress", wide_only=True),
    ColumnHead("loss", wide_only=True),
    ColumnHead("evictions"),
    ColumnHead("spent"),
)
_NIGHT_HEADS = (
    ColumnHead("job", is_text=True),
    ColumnHead("next", is_text=True, wide_only=True),
    ColumnHead("last night", is_text=True),
    ColumnHead("cost"),
)


def overview_page(
    standings: Sequence[Standing],
    waits: Sequence[Mapping[str, Any]],
    nights: Sequence[Mapping[str, Any]],
    notices: Sequence[str] = (),
    *,
    whole: bool = False,
) -> str:
    """All jobs. `waits` and `nights` are in the form of `status --json` and `nightly ls --json`."""
    active = [known for known in standings if known.answer["state"] in ACTIVE]
    ended = [known for known in reversed(standings) if known.answer["state"] not in ACTIVE]
    shown = ended if whole else ended[:MOST_ENDED]
    parts = [
        el("nav", el("a", "Costs", href="costs")),
        el("h1", _title(len(active), len(ended), len(waits))),
        *(paragraph(text, "notice") for text in notices),
        _runs("Now", active),
        _waiting(waits),
        _runs("Ended", shown),
    ]
    if len(shown) < len(ended):
        parts.append(paragraph(el("a", f"All {len(ended):,} ended runs", href="?all")))
    return renewed_page("spotctl", *parts, _nights(nights))


def _title(active: int, ended: int, waiting: int) -> str:
    if not active + ended + waiting:
        return "No job was launched yet"
    waits = f", {counted(waiting, 'job')} waiting" if waiting else ""
    return f"{counted(active, 'active run')}{waits}" if active or waiting else "Nothing runs"


def _runs(title: str, standings: Sequence[Standing]) -> Html:
    if not standings:
        return Html()
    lines = [el("p", el("code", known.ways_on), class_="lead") for known in standings if known.ways_on]
    return section(title, table(_HEADS, list(map(_row, standings))), *lines)


def _row(standing: Standing) -> tuple[str, ...]:
    job = standing.answer
    spent = f"{spending_text(standing.spent)}{' replayed' if job['replayed'] else ''}"
    state: str = job["state"]
    return (
        el("a", job["name"], href=f"run/{quote(job['name'], safe='')}"),
        state if state in (*ACTIVE, DONE) else el("strong", state),
        str(len(job["machines"]) or ""),
        _progress(job),
        shown_loss(job["loss"]) or "",
        str(job["evictions"]),
        spent,
    )


def _progress(job: Mapping[str, Any]) -> str:
    if job["clock"] is not None:
        return f"clock {job['clock']:,}"
    return f"attempt {attempt}" if (attempt := job.get("attempt")) else ""


def _waiting(waits: Sequence[Mapping[str, Any]]) -> Html:
    if not waits:
        return Html()
    heads = (ColumnHead("job", is_text=True), ColumnHead("after", is_text=True), ColumnHead("begins", is_text=True))
    rows = [(job["name"], ", ".join(job["after"]) or job["state"], job["begins"] or "unknown") for job in waits]
    return section("Waiting", table(heads, rows))


def _nights(nights: Sequence[Mapping[str, Any]]) -> Html:
    if not nights:
        return Html()
    problems = [paragraph(f"{job['name']}: {problem}", "notice") for job in nights for problem in job["problems"]]
    return section("Nights", *problems, table(_NIGHT_HEADS, [_night(job) for job in nights]))


def _night(job: Mapping[str, Any]) -> tuple[str, ...]:
    last = job["last_night"] or {}
    cost = "" if last.get("cost_usd") is None else usd_text(last["cost_usd"])
    outcome = f"{last['night']} {last['outcome']}" if last else "none yet"
    return job["name"], job["next"] or "", outcome, f"{cost} replayed" if last.get("replayed") else cost
