"""`spotctl prices sql`: any other question about stored prices."""

from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="SQL over the view prices (see above).")],
    json_: JsonOption = False,
) -> None:
    """Query prices in SQL.

    Columns of the view `prices`: market, cloud, region, zone, instance_type, os, time (UTC), usd_per_hour.

    Example: spotctl prices sql "select market, max(usd_per_hour) from prices group by 1 order by 2 desc limit 5"

    \f

    Fields:
        rows: the result
        rows[].*: value of this column
    """
    from pricing_data.query import query as run
    from spotctl.show import terminal
    from spotctl.show.prices import as_json as prices_json

    session: Session = context.obj
    answer = session.library.over_segments(lambda segments, corrected: run(segments, corrected, query))
    session.answer(json_, {"rows": prices_json.rows(answer)}, terminal.rows(answer, session.out.width))
