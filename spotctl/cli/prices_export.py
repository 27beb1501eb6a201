"""`spotctl prices export`: stored prices as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.options import CloudOption, GlobArgument, RegionOption, TypeOption, selection
from spotctl.cli.session import JsonOption, Session


def export(
    context: typer.Context,
    glob: GlobArgument = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file: .csv, .csv.gz or .parquet. Default: CSV on stdout.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Export price history in the format that import reads.

    Example: spotctl prices export 'aws/us-east-1' --out history.csv.gz

    \f

    Fields:
        file: the file written
        rows: number of its rows
        markets: number of its markets
    """
    import sys

    from pricing_data.export import export as write
    from pricing_data.export import write_csv
    from spotctl import wiring
    from spotctl.errors import BadRequest

    session: Session = context.obj
    if json_ and out is None:
        raise BadRequest("export: --json needs --out FILE, because stdout carries the JSON")
    library = wiring.library(session.settings)
    table = library.table(library.require(selection(glob, cloud, region, type_)))
    if out is None:
        write_csv(table, sys.stdout.buffer)
        return
    write(table, out)
    if json_:
        session.answer_json({"file": str(out), "rows": len(table), "markets": len(table.markets)})
    else:
        session.remark(f"wrote {len(table):,} events of {len(table.markets)} markets to {out}")
