"""`spotctl report`: what runs cost, and whether the provider's bill says the same."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from spotctl.reports.cost import Report

app = typer.Typer(help="What was paid, for what, and beside the provider's bill.", no_args_is_help=True)

JobOption = Annotated[list[str] | None, typer.Option("--job", help="Only this job. Repeatable.", show_default="all")]
SinceOption = Annotated[str, typer.Option(help="Only runs that began since: 30d, 12h, 2026-01-31.", show_default="all")]


class Format(StrEnum):
    """How a report is told."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    HTML = "html"
    FOCUS = "focus"


@app.command()
def cost(
    context: typer.Context,
    job: JobOption = None,
    since: SinceOption = "",
    by: Annotated[
        str, typer.Option(help="Sums by one or more of job, run, cloud, region, type, market, day, tag.")
    ] = "job",
    format_: Annotated[
        Format,
        typer.Option("--format", help="html is one file that opens offline; focus is the FinOps columns in CSV."),
    ] = Format.TABLE,
    out: Annotated[Path | None, typer.Option(help="Write it to this file.", show_default="stdout")] = None,
    json_: JsonOption = False,
) -> None:
    """Show what runs cost, what on-demand machines would have cost for the same work, and where the money went.

    --since goes by this computer's clock. Days, and the times of rows, are those of the provider's clock; on the market
    of this computer that is the past that is replayed, and nothing was paid.

    Example: spotctl report cost --since 30d --by job,region --format html --out costs.html
    """
    from spotctl.cli.options import start_of
    from spotctl.errors import BadRequest
    from spotctl.reports import tables
    from spotctl.reports.cost import parse_by
    from spotctl.reports.gather import gathered, write

    session: Session = context.obj
    now = time.time_ns() // 1000
    wanted = Format.JSON if json_ else format_
    groups = parse_by(by)
    if wanted is Format.HTML and out is None and sys.stdout.isatty():
        raise BadRequest("--format html is for a browser: give --out costs.html")
    start = start_of(since, now) if since else None
    report = gathered(session.settings, job or (), start, groups, now)
    if wanted is Format.TABLE and out is None:
        session.out.print(tables.shown(report, session.out.width))
        return
    text = _told(report, wanted)
    if out is None:
        sys.stdout.write(text)
    else:
        write(out, text)
        session.remark(f"wrote {out}")


def _told(report: Report, wanted: Format) -> str:
    import json

    from spotctl.reports import answers, focus, page, tables

    match wanted:
        case Format.TABLE:
            return tables.plain(report)
        case Format.JSON:
            return json.dumps(answers.as_json(report), indent=2, allow_nan=False) + "\n"
        case Format.CSV:
            return answers.as_csv(report)
        case Format.MD:
            return answers.as_markdown(report)
        case Format.HTML:
            return page.html(report)
        case Format.FOCUS:
            return focus.as_csv(report)
