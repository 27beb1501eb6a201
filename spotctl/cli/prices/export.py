"""`spotctl lab prices export`: stored prices as CSV or Parquet."""

import sys
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
    """Export price history in the format of `prices import`.

    Example: spotctl lab prices export 'aws/us-east-1' --out history.csv.gz

    \f

    Fields:
        file: the file written; null without --out
        rows: number of price changes
        markets: number of markets
        history: without --out: the price changes
        history[].timestamp: when this price began (UTC)
        history[].cloud: cloud
        history[].region: region
        history[].zone: zone; empty if the market has none
        history[].instance_type: machine type
        history[].product: operating system, as import reads it
        history[].spot_price: dollars per hour
    """
    from pricing_data.export import export as write, objects, write_csv

    session: Session = context.obj
    table = session.library.table(session.library.require(selection(glob, cloud, region, type_)))
    summary = {"file": None if out is None else str(out), "rows": len(table), "markets": len(table.markets)}
    if out is None and json_:
        session.answer_json({**summary, "history": objects(table)})
        return
    if out is None:
        write_csv(table, sys.stdout.buffer)
        return
    write(table, out)
    session.answer(json_, summary, None, f"wrote {len(table):,} events of {len(table.markets)} markets to {out}")
