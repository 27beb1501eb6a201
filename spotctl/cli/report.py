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
        typer.Option("--format", help="html: one file that opens offline. focus: the columns of FOCUS 1.2 in CSV."),
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


class Provider(StrEnum):
    """Whose bill it is."""

    AWS = "aws"
    GCP = "gcp"
    AZURE = "azure"


@app.command()
def reconcile(
    context: typer.Context,
    bill: Annotated[
        Path,
        typer.Option(help="An AWS Cost and Usage Report, or a detailed export of Google Cloud's or Azure's costs."),
    ],
    provider: Annotated[Provider | None, typer.Option(help="Whose bill it is.", show_default="by its columns")] = None,
    tolerance: Annotated[str, typer.Option(help="By how much of a machine's cost both may differ: 1%, 0.")] = "0.5%",
    accept: Annotated[
        bool, typer.Option("--accept", help="Where a machine's amounts differ, correct the ledger by a row of its own.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Lay the ledger beside the provider's own bill, and name what differs.

    What is missing on one side, what the bill has twice, what it has in another currency, and amounts that differ.
    Lines are taken as spotctl's by the tag spotctl-run; where an export tells no tags, all lines of machines are.
    With --accept the ledger takes the bill's amounts of machines that both have; what it said before stays beside it.

    Exit codes: 0 they agree, 1 they differ, 2 the bill cannot be read.

    Example: spotctl report reconcile --bill cur.csv.gz --tolerance 1%
    """
    from spotctl.ledger.read import correct, read
    from spotctl.reports.bills import views
    from spotctl.reports.bills.accepted import corrections
    from spotctl.reports.bills.read import read_bill
    from spotctl.reports.bills.reconcile import reconciled

    session: Session = context.obj
    share = _share(tolerance)
    found = read_bill(bill, provider or "")
    rows = [row for one in read(session.settings) for row in one.ledger.rows]
    agreement = reconciled(rows, found, share)
    if json_:
        session.answer_json(views.as_json(agreement))
    else:
        sys.stdout.writelines(f"{line}\n" for line in views.as_lines(agreement, str(bill)))
    if accept:
        taken = corrections(agreement, rows, bill.name)
        correct(session.settings, taken)
        session.remark(f"corrected {len(taken)} {'machine' if len(taken) == 1 else 'machines'} by the bill's amounts")
    raise typer.Exit(0 if agreement.agrees else 1)


def _share(text: str) -> float:
    """`1%` or `0.01`."""
    from spotctl.errors import BadRequest

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise BadRequest(f"--tolerance {text!r} is no share from 0 to below 1 (write 0.5% or 0.005)")
    return share
