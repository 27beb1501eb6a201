"""`spotctl lab prices sql`: any other question about stored prices."""

from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="SQL over the view prices (see above).")],
    memory: Annotated[str, typer.Option(help="End the query when it needs more memory: 500MB, 4GB.")] = "1GB",
    timeout: Annotated[str, typer.Option(help="End the query when it takes longer: 30s, 1h.")] = "5m",
    json_: JsonOption = False,
) -> None:
    """Query prices in SQL.

    Columns of the view `prices`: market, cloud, region, zone, instance_type, os, time (UTC), usd_per_hour.

    Example: spotctl lab prices sql "select market, max(usd_per_hour) from prices group by 1 order by 2 desc limit 5"

    \f

    Fields:
        rows: the result
        rows[].*: value of this column
    """
    from pricing_data.query import QueryLimits, query as run
    from pricing_data.units import SECOND, parse_duration
    from spotctl.files.job.forms import SIZE
    from spotctl.home.memory_ceiling import memory_ceiling
    from spotctl.show import terminal
    from spotctl.show.prices import answers

    session: Session = context.obj
    try:
        limits = QueryLimits(SIZE.read(memory), parse_duration(timeout) / SECOND)
    except ValueError:
        raise BadRequest(f"--memory {memory!r} is not {SIZE.expected}") from None
    library = session.library
    try:
        # The ceiling is also for the result and its text, which are not DuckDB's.
        with memory_ceiling(limits.memory_bytes):
            answer = library.over_segments(lambda segments, corrected: run(segments, corrected, query, limits))
            session.answer(json_, {"rows": answers.rows(answer)}, terminal.rows(answer, session.out.width))
    except MemoryError:
        raise limits.too_large() from None
