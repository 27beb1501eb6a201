"""The first page of `spotctl ui`: the latest run of every job, jobs that wait, and nights. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pricing_data.units import SECOND, counted, usd_text
from spotctl.log.outcomes import DONE
from spotctl.show.costs.markup import Html, el, fragment
from spotctl.show.costs.page_parts import ColumnHead, paragraph, section, table
from spotctl.show.phrases import moment
from spotctl.show.runs.run_view import RunView
from spotctl.show.runs.status import shown_loss, spent_text, ways_on
from spotctl.show.ui.page_shell import renewed_page, short_time

RUNNING = "running"
ACTIVE = (RUNNING, "stopping", "interrupted")
MAX_ENDED = 100
"""Ended runs that are shown unless all are asked for."""

_NAMES = (ColumnHead("job", is_text=True), ColumnHead("state", is_text=True))
_PROGRESS = (ColumnHead("progress", wide_only=True), ColumnHead("loss", wide_only=True))
_ACTIVE_HEADS = (
    *_NAMES,
    ColumnHead("began (UTC)", wide_only=True),
    ColumnHead("machines"),
    *_PROGRESS,
    ColumnHead("evictions", wide_only=True),
    ColumnHead("spent"),
)
_ENDED_HEADS = (
    *_NAMES,
    ColumnHead("ended (UTC)", wide_only=True),
    *_PROGRESS,
    ColumnHead("evictions"),
    ColumnHead("spent"),
)
_NIGHT_HEADS = (
    ColumnHead("job", is_text=True),
    ColumnHead("next (local time)", is_text=True, wide_only=True),
    ColumnHead("last night", is_text=True),
    ColumnHead("cost"),
)
_FIRST_STEPS = fragment(
    paragraph("Write a job file for your script, and launch it. This page will show the run."),
    el("pre", "spotctl init train.py\nspotctl launch job.yaml"),
)


def overview_page(
    views: Sequence[RunView],
    waits: Sequence[Mapping[str, Any]],
    nights: Sequence[Mapping[str, Any]],
    notices: Sequence[str] = (),
    *,
    whole: bool = False,
) -> str:
    """All jobs. `waits` and `nights` are in the form of `status --json` and `nightly ls --json`."""
    active = [view for view in views if view.status in ACTIVE]
    ended = [view for view in views if view.status not in ACTIVE]
    ended.sort(key=lambda view: (view.ended or 0) // SECOND, reverse=True)
    shown = ended if whole else ended[:MAX_ENDED]
    title = _title(len(active), len(ended), len(waits))
    # The commands that help runs which do not run as they should.
    advice = [ways_on(view) for view in active if view.status != RUNNING]
    parts = [
        el("nav", el("a", "Costs", href="costs")),
        el("h1", title),
        *(paragraph(text, "notice") for text in notices),
        *([] if views or waits else [_FIRST_STEPS]),
        _runs("Now", _ACTIVE_HEADS, [_active_row(view) for view in active], advice),
        _waiting(waits),
        _runs("Ended", _ENDED_HEADS, [_ended_row(view) for view in shown]),
    ]
    if len(shown) < len(ended):
        parts.append(paragraph(el("a", f"All {len(ended):,} ended runs", href="?all")))
    return renewed_page(f"spotctl: {title}", *parts, _nights(nights))


def _title(active: int, ended: int, waiting: int) -> str:
    if not active + ended + waiting:
        return "No runs yet"
    waits = f", {counted(waiting, 'job')} waiting" if waiting else ""
    return f"{counted(active, 'active run')}{waits}" if active or waiting else "Nothing is running"


def _runs(title: str, heads: Sequence[ColumnHead], rows: Sequence[tuple[str, ...]], advice: Sequence[str] = ()) -> Html:
    if not rows:
        return Html()
    return section(title, table(heads, rows), *(paragraph(line, "lead after") for line in advice))


def _active_row(view: RunView) -> tuple[str, ...]:
    state = view.status if view.status == RUNNING else el("strong", view.status)
    return (_link(view), state, short_time(moment(view.began)), str(len(view.machines)), *_figures(view))


def _ended_row(view: RunView) -> tuple[str, ...]:
    state = view.status if view.status == DONE else el("strong", view.status)
    return (_link(view), state, "" if view.ended is None else short_time(moment(view.ended)), *_figures(view))


def _link(view: RunView) -> Html:
    return el("a", view.job, href=f"run/{quote(view.job, safe='')}")


def _figures(view: RunView) -> tuple[str, ...]:
    spent = _amount(spent_text(view), is_replayed=view.is_replayed)
    return _progress(view), shown_loss(view.model_loss) or "", f"{view.evictions:,}", spent


def _amount(text: str, *, is_replayed: bool) -> str:
    return fragment(text, " ", el("small", "replayed")) if is_replayed else text


def _progress(view: RunView) -> str:
    if view.clock is not None:
        return f"clock {view.clock:,}"
    return f"attempt {view.command.attempt}" if view.command is not None else ""


def _waiting(waits: Sequence[Mapping[str, Any]]) -> Html:
    if not waits:
        return Html()
    heads = (
        ColumnHead("job", is_text=True),
        ColumnHead("after", is_text=True),
        ColumnHead("begins (UTC)", is_text=True),
    )
    rows = [(job["name"], ", ".join(job["after"]) or job["state"], short_time(job["begins"] or "")) for job in waits]
    return section("Waiting", table(heads, [(*row[:-1], row[-1] or "unknown") for row in rows]))


def _nights(nights: Sequence[Mapping[str, Any]]) -> Html:
    if not nights:
        return Html()
    problems = [paragraph(f"{job['name']}: {problem}", "notice") for job in nights for problem in job["problems"]]
    return section("Nights", *problems, table(_NIGHT_HEADS, [_night(job) for job in nights]))


def _night(job: Mapping[str, Any]) -> tuple[str, ...]:
    last = job["last_night"] or {}
    cost = "" if last.get("cost_usd") is None else usd_text(last["cost_usd"])
    outcome = f"{last['night']} {last['outcome']}" if last else "none yet"
    return job["name"], job["next"] or "", outcome, _amount(cost, is_replayed=bool(last.get("replayed")))
