"""`spotctl report`: cost reports, and comparison with the provider's bill."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import counted
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.printable import printable
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.show.costs.cost import Report
    from spotctl.show.costs.later_corrections import CorrectedBill

app = typer.Typer(
    help="Cost reports, and comparison with the provider's bill.", no_args_is_help=True
)

JobOption = Annotated[
    list[str] | None, typer.Option("--job", help="Only this job. Repeatable.", show_default="all")
]
SinceOption = Annotated[
    str,
    typer.Option(
        help="Only money spent since: 30d, 12h, 2026-01-31.", show_default="the first run"
    ),
]
UntilOption = Annotated[
    str,
    typer.Option(help="Only money spent before: 2026-02-01, 1d (a day ago).", show_default="now"),
]
LocalOption = Annotated[
    bool,
    typer.Option("--local", help="Only runs on the local market, where no real money is spent."),
]


class Format(StrEnum):
    """Output formats of a cost report."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    HTML = "html"
    FOCUS = "focus"
    FOCUS_1_0 = "focus-1.0"


@app.command()
def cost(
    context: typer.Context,
    job: JobOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    by: Annotated[
        str,
        typer.Option(
            help="Group by one or more of job, run, cloud, region, type, market, pricing, kind, "
            "day, month, tag, or by the values of tags with these names: user,team."
        ),
    ] = "job",
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="html: one self-contained file. focus: CSV with columns of FOCUS 1.2 (or 1.0).",
            show_default="as --out ends, or table",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output file.", show_default="stdout")] = None,
    local: LocalOption = False,
    tz: Annotated[
        str,
        typer.Option(
            "--tz", help="Time zone of days and months, and of --since and --until: Europe/Berlin."
        ),
    ] = "UTC",
    json_: JsonOption = False,
) -> None:
    """Show what runs cost, what the same work would have cost on demand, and where the money went.

    --since and --until use this computer's clock, and count the part of a run in between. Days and
    times in the report use the provider's clock; on the local market that is the replayed history.
    Days and months are those of UTC, as in bills, or of the time zone --tz; the monthly budget is
    always compared in UTC. Types and markets are split into spot and on-demand machines.

    Runs on the local market, where no real money is spent, are in no sum with other runs: they are
    left out unless there are no others. --local reports on them alone.

    Example: spotctl report cost --since 30d --by job,region --out costs.html

    Example: spotctl report cost --since 2026-01-01 --until 2026-02-01 --by kind
    """
    from spotctl.show.costs.accounts import write

    session: Session = context.obj
    if json_ and format_ not in (None, Format.TABLE, Format.JSON):
        raise BadRequest(
            f"--json and --format {format_.value} contradict each other; give only one"
        )

    ending = "" if out is None else out.suffix.removeprefix(".")
    chosen_format = Format.JSON
    if not json_:
        chosen_format = format_ or (Format(ending) if ending in list(Format) else Format.TABLE)

    if chosen_format is Format.HTML and out is None and sys.stdout.isatty():
        raise BadRequest("--format html writes a page: pass --out costs.html")

    report = gather_report(session, job or (), since, until, by, local=local, tz=tz)
    if not report.runs:
        from spotctl.home.paths import Paths
        from spotctl.log.salvage import no_runs
        from spotctl.log.statuses import job_names

        if not job_names(session.settings):
            session.remark(no_runs(Paths(session.settings.home)))

    later: list[CorrectedBill] = []
    # The file's name is enough to know of corrections without loading the price store.
    if report.runs and any(session.settings.price_store.glob("corrections-*")):
        from spotctl.show.costs.later_corrections import corrected_bills

        later = corrected_bills(session.settings, report.runs)

    session.remark(*(() if chosen_format is Format.JSON else map(str, later)))
    if chosen_format is Format.TABLE and out is None:
        from spotctl.show.costs import tables

        session.out.print(tables.terminal_report(report, session.out.width))
        return

    texts = _formatted(report, chosen_format, later)
    if out is None:
        sys.stdout.writelines(map(printable, texts) if sys.stdout.isatty() else texts)
    else:
        write(out, texts)
        session.remark(f"wrote {out}")


def gather_report(
    session: Session,
    jobs: Sequence[str],
    since: str,
    until: str,
    by: str,
    *,
    local: bool = False,
    tz: str = "UTC",
) -> Report:
    """The report that these options ask for."""
    from spotctl.cli.options import in_zone, moment_of, start_of, time_zone
    from spotctl.cli.runs import remote_runner
    from spotctl.show.costs.accounts import gather
    from spotctl.show.costs.periods import Period, parse_by

    now = wall_us()
    groups = parse_by(by)
    zone = time_zone(tz)
    began = start_of(in_zone(since, zone), now) if since else None
    period = Period(began, moment_of(in_zone(until, zone), now) if until else None, zone)
    if period.since is not None and period.until is not None and period.since >= period.until:
        raise BadRequest(f"--until {until} is not after --since {since}")

    attended = remote_runner.refresh(session)
    return gather(session.settings, jobs, period, groups, now, local=local, elsewhere=attended)


def _formatted(
    report: Report, format_: Format, later: Sequence[CorrectedBill] = ()
) -> Iterator[str]:
    """Each format imports only what it needs: the page's charts take as long to import as a small
    report to make.
    """
    match format_:
        case Format.TABLE:
            from spotctl.show.costs import tables

            yield tables.plain_text(report)
        case Format.JSON:
            import json

            from spotctl.show.costs import answers

            yield json.dumps(answers.as_json(report, later), indent=2, allow_nan=False) + "\n"
        case Format.CSV:
            from spotctl.show.costs import answers

            yield answers.as_csv(report)
        case Format.MD:
            from spotctl.show.costs import answers

            yield answers.as_markdown(report)
        case Format.HTML:
            from spotctl.show.costs import page

            yield page.html(report)
        case Format.FOCUS | Format.FOCUS_1_0:
            from spotctl.show.costs import focus

            yield from focus.csv_lines(
                report, focus.COLUMNS if format_ is Format.FOCUS else focus.COLUMNS_1_0
            )


@app.command()
def reconcile(
    context: typer.Context,
    bill: Annotated[
        Path,
        typer.Option(
            help="Cost and Usage Report of AWS, detailed cost export of Google Cloud or Azure, or "
            "a FOCUS export."
        ),
    ],
    provider: Annotated[
        str, typer.Option(help="Cloud of the bill, such as aws.", show_default="by its columns")
    ] = "",
    tolerance: Annotated[str, typer.Option(help="Allowed difference per machine: 1%, 0.")] = "0.5%",
    accept: Annotated[
        bool,
        typer.Option(
            "--accept", help="Correct the ledger where amounts differ, with a row per machine."
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Compare the ledger with the provider's bill, and list the differences.

    Lists rows missing on either side, duplicates, other currencies, and amounts that differ. Bill
    lines belong to spotctl if they carry the tag spotctl-run; in an export without tags, all
    machine lines count. With --accept, the ledger takes the bill's amounts for machines that both
    have, and keeps the original amounts, too.

    Exit codes: 0 they agree, 1 they differ, 2 the bill cannot be read.

    Example: spotctl report reconcile --bill cur.csv.gz --tolerance 1%
    """
    from spotctl.log.ledger_reader import correct, read
    from spotctl.show.columns import as_json
    from spotctl.show.costs.bills import views
    from spotctl.show.costs.bills.read import read_bill
    from spotctl.show.costs.bills.reconcile import reconcile as compare
    from spotctl.show.costs.bills.views import corrections

    session: Session = context.obj

    try:
        share = float(tolerance.removesuffix("%")) / (100 if tolerance.endswith("%") else 1)
    except ValueError:
        share = -1.0

    if not 0 <= share < 1:
        raise BadRequest(
            f"--tolerance {tolerance!r} is not a fraction from 0 to below 1 (write 0.5% or 0.005)"
        )

    bill_lines = read_bill(bill, provider)
    runs = read(session.settings)

    if lacking := [run.state.run for run in runs if run.ledger.is_least]:
        session.remark(
            f"the ledger does not have all costs of {', '.join(lacking)} (spotctl log check)"
        )

    rows = [row for run in runs for row in run.ledger.rows]
    agreement = compare(rows, bill_lines, share)
    if json_:
        session.answer_json(as_json(views.AGREEMENT, agreement))
    else:
        session.say(*views.as_lines(agreement, str(bill)), indent=2)

    if accept:
        taken = corrections(agreement, rows, bill.name)
        correct(session.settings, taken)
        session.remark(f"corrected {counted(len(taken), 'machine')} by the bill's amounts")

    raise typer.Exit(0 if agreement.agrees else 1)
