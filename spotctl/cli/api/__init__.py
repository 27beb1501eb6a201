"""The commands `plan`, `launch` and `report cost` for scripts and notebooks: the same path, with
values as results.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from pricing_data.units import to_datetime
from spotctl.cli.report import gather_report
from spotctl.cli.runs import launches
from spotctl.cli.session import Session
from spotctl.files.job import reader
from spotctl.home.errors import BadRequest, Interrupted, requiring_extras
from spotctl.log.ledger.same_work import final_figures
from spotctl.planning.forecast import finish_by
from spotctl.run.start.launch_plans import stored_plans
from spotctl.show.costs import answers, page, tables
from spotctl.show.layout import PrintableConsole
from spotctl.show.plans import plan_answers, plan_tables
from spotctl.show.runs import lines as run_lines

if TYPE_CHECKING:
    from pandas import DataFrame

    from spotctl.files.job.spec import JobSpec
    from spotctl.planning.values import JobPlan


__all__ = ["launch", "plan", "report"]

JobFile = str | PathLike[str] | Mapping[str, Any]
"""The path of a job file, or its fields."""


def plan(
    job: JobFile, *, at: str = "", hours: str | float = "", home: str | PathLike[str] | None = None
) -> PlannedJob:
    """Which machines would be rented for a job, and why. Nothing is rented.

    `at` is a point in the price history (`2026-01-20T12:00:00Z`) instead of now. `hours` is the
    length of a job that does not say: `8h`, or a number. `home` is the folder of prices, logs and
    settings, as `--home`.
    """
    session = _session(home)
    spec = _spec(job, session.settings.home)
    planned = stored_plans(
        [spec], session.settings, at, hours if isinstance(hours, str) else f"{hours}h"
    )
    (own,) = planned.plans
    (answer,) = plan_answers.answers(planned)
    expected = answer["expected"]
    return PlannedJob(
        answer,
        lambda width: plan_tables.plan_view(own, width, explain=False),
        job=answer["job"],
        cost_usd=expected["cost_usd"],
        cost_p10_usd=expected["cost_p10_usd"],
        cost_p90_usd=expected["cost_p90_usd"],
        hours=expected["hours"],
        finish_by=None if expected["finish_by"] is None else to_datetime(finish_by(own)),
        on_demand_usd=answer["on_demand_usd"],
        remarks=planned.remarks,
        _plan=own,
    )


def launch(
    job: JobFile,
    *,
    max_cost: str | float = "",
    fresh: bool = False,
    attached: bool = False,
    home: str | PathLike[str] | None = None,
) -> LaunchedJob:
    """Rents machines for a job without asking, runs it to its end, and shuts every machine down.

    A job that fails, or ends early, raises nothing: `outcome` says how it ended. On a terminal,
    progress is shown on stderr. Ctrl-C stops the run; on a cloud it only stops watching, with
    Interrupted, once the runner has moved to a machine. `max_cost` is in dollars; `fresh` and
    `attached` are the flags of the command.
    """
    session = _session(home)
    spec = _spec(job, session.settings.home)
    order, planned = launches.prepare(
        session, [spec], str(max_cost), attached=attached, fresh=fresh
    )
    ending = launches.run(session, order, planned.plans)[0].ending

    if ending is None:
        raise Interrupted(
            f"job {spec.name} continues without this computer ('spotctl resume {spec.name}' "
            "watches it)"
        )

    state, ended = ending
    answer = final_figures(state, ended)
    return LaunchedJob(
        answer,
        lambda _: run_lines.summary(state, ended),
        run=state.run,
        outcome=ended.outcome,
        message=ended.message,
        cost_usd=answer["cost_usd"],
        on_demand_usd=answer["on_demand_usd"],
        replayed=answer["replayed"],
        hours=answer["hours"],
        evictions=state.evictions,
        model=Path(answer["model"]) if "model" in answer else None,
    )


def report(
    jobs: str | Sequence[str] = (),
    *,
    since: str = "",
    until: str = "",
    by: str = "job",
    local: bool = False,
    home: str | PathLike[str] | None = None,
) -> CostReport:
    """The cost of the runs of one job, of several, or of all. The options are those of `spotctl
    report cost`.
    """
    names = [jobs] if isinstance(jobs, str) else jobs
    gathered = gather_report(_session(home), names, since, until, by, local=local)
    answer = answers.as_json(gathered)
    return CostReport(
        answer,
        lambda width: tables.terminal_report(gathered, width),
        page=page.html(gathered),
        total_usd=answer["total_usd"],
        on_demand_usd=answer["on_demand_usd"],
        saved_pct=answer["saved_pct"],
        replayed=gathered.is_replayed,
        evictions=answer["evictions"],
    )


def _session(home: str | PathLike[str] | None) -> Session:
    return Session(None if home is None else Path(home))


def _spec(job: JobFile, home: Path) -> JobSpec:
    if isinstance(job, Mapping):
        return reader.from_fields(job, home)
    if isinstance(job, str | PathLike):
        return reader.load(Path(job), home=home)
    raise BadRequest(
        f"job is of type {type(job).__name__}; pass the path of a job file, or a dict of its fields"
    )


_WIDTH = 120
_HTML = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3;font-family:ui-monospace,monospace">{code}</pre>'


@dataclass(frozen=True)
class Drawn:
    """A command's result: `str()` is its text on the terminal, `json()` its answer with
    `--json`."""

    _answer: Mapping[str, Any] = field(repr=False)
    _view: Callable[[int], RenderableType] = field(repr=False, compare=False)

    def json(self) -> dict[str, Any]:
        """The command's answer with `--json`."""
        return deepcopy(dict(self._answer))

    def __str__(self) -> str:
        width = shutil.get_terminal_size((_WIDTH, 0)).columns
        console = PrintableConsole(
            file=StringIO(), width=width, highlight=False, color_system=None, force_jupyter=False
        )
        with console.capture() as drawn:
            console.print(self._view(width))
        return "\n".join(line.rstrip() for line in drawn.get().rstrip().splitlines())

    def _repr_html_(self) -> str:
        console = PrintableConsole(
            file=StringIO(), width=_WIDTH, highlight=False, record=True, force_jupyter=False
        )
        console.print(self._view(_WIDTH))
        return console.export_html(inline_styles=True, code_format=_HTML)


@dataclass(frozen=True)
class PlannedJob(Drawn):
    """A job's plan: the median of its cost in dollars with P10 and P90, of its hours, and its cost
    on demand.

    Cost, hours and end are None for a job of unknown length. `remarks` are about the data that the
    plan rests on.
    """

    job: str
    cost_usd: float | None
    cost_p10_usd: float | None
    cost_p90_usd: float | None
    hours: float | None
    finish_by: datetime | None
    on_demand_usd: float
    remarks: tuple[str, ...]
    _plan: JobPlan = field(repr=False, compare=False)

    def plot(self, path: str | PathLike[str]) -> None:
        """Writes the picture of `spotctl plan --plot`: a .png or .svg file."""
        with requiring_extras():
            from spotctl.show.plans import plots as plan_plots
        plan_plots.draw([self._plan], Path(path))

    def _repr_html_(self) -> str:
        try:
            from spotctl.show.plans import plots as plan_plots
        except ModuleNotFoundError:
            return super()._repr_html_()
        return f"{plan_plots.svg([self._plan])}{super()._repr_html_()}"


@dataclass(frozen=True)
class LaunchedJob(Drawn):
    """How a run ended: its `outcome` (`done`, `failed`, `stopped`, `budget reached`, ...) and its
    figures.

    Costs are None if nothing was rented; `replayed` means that nothing was billed, because the
    market was the local one. `hours` are those of the market. `model` is the file of a training's
    model.
    """

    run: str
    outcome: str
    message: str
    cost_usd: float | None
    on_demand_usd: float | None
    replayed: bool
    hours: float
    evictions: int
    model: Path | None


@dataclass(frozen=True)
class CostReport(Drawn):
    """The cost of runs, and of the same work on demand; None where that is unknown.

    `replayed`: the runs were on the local market, and nothing was billed. No report has both kinds
    of money. `page` is the report as a self-contained HTML page, which a notebook shows.
    """

    page: str = field(repr=False)
    total_usd: float
    on_demand_usd: float | None
    saved_pct: float | None
    replayed: bool
    evictions: int

    def frame(self) -> DataFrame:
        """The groups of the report as a pandas DataFrame, with the fields that `--json` gives a
        group.
        """
        from pandas import json_normalize

        return json_normalize(self._answer["groups"])

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.page)}" style="width:100%;height:40em;border:0"></iframe>'
