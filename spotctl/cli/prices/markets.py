"""`spotctl prices show`, and those of `spotctl lab prices` that answer questions about the stored
prices.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import counted
from spotctl.cli.boundary import DONE, FAILED
from spotctl.cli.options import (
    AcceleratorOption,
    CloudOption,
    GlobArgument,
    LastOption,
    MarketArgument,
    RegionOption,
    TypeOption,
    VcpusOption,
    check_regions,
    recent,
    selection,
)
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.market import Market


def ls(
    context: typer.Context,
    glob: GlobArgument = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    accelerator: AcceleratorOption = "",
    vcpus: VcpusOption = "",
    stats: Annotated[
        bool,
        typer.Option(
            "--stats",
            help="Compare them: mean, discount, changes and spikes per day, hours above on-demand, "
            "outliers, age.",
        ),
    ] = False,
    last: LastOption = "",
    gaps: Annotated[
        bool,
        typer.Option(
            "--gaps",
            help="List gaps: seams between downloads, times without observation, markets not "
            "watched lately.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Read every file of the price store; exit with 1 if one is damaged or missing.",
        ),
    ] = False,
    set_aside: Annotated[
        bool,
        typer.Option(
            "--set-aside",
            help="With --check: continue without damaged prices; their files are kept.",
        ),
    ] = False,
    json_: JsonOption = False,
) -> int:
    """List markets, one per line, compare them, or look for what is missing or damaged in their
    history.

    --last belongs to --stats. --check is about the whole store, and lists damaged, missing and
    unknown files. With --set-aside, files of prices that cannot be read leave the store, so that
    all other prices can be used again: commands that show prices then say which period has lost
    some, and the next fetch brings again what the clouds still offer.

    Example: spotctl lab prices ls 'aws/*/*/p3.*' --vcpus 8..32

    Example: spotctl lab prices ls 'aws/us-east-1/*/m4.*' --stats --last 7d

    Example: spotctl lab prices ls --check
    """
    session: Session = context.obj
    given = {"--stats": stats, "--gaps": gaps, "--check": check}
    if sum(given.values()) > 1:
        raise BadRequest(
            f"ls: {' and '.join(name for name in given if given[name])} are different questions; "
            "give one"
        )
    if (last and not stats) or (set_aside and not check):
        raise BadRequest("ls: --last belongs to --stats, and --set-aside to --check")
    if check:
        return _check(session, set_aside=set_aside, json_=json_)

    library = session.library
    accelerators = library.catalog.accelerators
    if not any(accelerator.lower() in known.lower() for known in accelerators):
        why = library.catalog.unknown_accelerator(accelerator, ())
        raise BadRequest(f"--accelerator {accelerator}: {why}")
    chosen = selection(glob, cloud, region, type_, accelerator, vcpus)
    if gaps:
        from pricing_data.stats import find_gaps
        from spotctl.show import terminal
        from spotctl.show.columns import as_json
        from spotctl.show.prices import price_answers

        markets, now = library.require(chosen), wall_us()
        report = find_gaps(session.library.table(markets), now)
        if json_:
            session.answer_json(as_json(price_answers.GAPS, report))
        else:
            session.say(*terminal.gaps(report, now), indent=7)
    elif stats:
        _stats(session, library.require(chosen), last, json_=json_)
    else:
        _list(session, library.select(chosen), region or (), json_=json_)

    return DONE


def _list(
    session: Session, markets: Sequence[Market], regions: Sequence[str], *, json_: bool
) -> None:
    from rich.text import Text

    from pricing_data.library import freshness_of_stored
    from pricing_data.store.facts import LOST
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers
    from spotctl.show.terminal import fetch_command, market_name

    library = session.library
    if json_:
        clouds = freshness_of_stored(library, markets)
        now = wall_us()
        lost = library.store.facts(LOST)
        answer = {
            "markets": markets,
            "clouds": clouds,
            "fetch": fetch_command(clouds, now, regions),
            "lost": lost,
        }
        session.answer_json(as_json(price_answers.MARKETS, answer, now))
    elif markets:
        session.remark(*price_answers.lost_remarks(library.store.facts(LOST)))
        session.out.print(Text("\n").join(map(market_name, markets)), soft_wrap=True)
    else:
        check_regions("ls", regions)
        session.remark(
            "no matching market (get price history with: spotctl prices import, or spotctl prices "
            "fetch)"
        )


def _stats(session: Session, markets: Sequence[Market], last: str, *, json_: bool) -> None:
    from pricing_data.stats import describe
    from pricing_data.store.facts import LOST
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    library = session.library
    if last:
        all_stats = library.each(
            markets, lambda series: describe(recent(series, last), library.catalog)
        )
    else:
        all_stats = library.statistics(markets)

    now = wall_us()
    lost = library.store.facts(LOST)
    session.answer(
        json_,
        as_json(price_answers.STATISTICS, {"markets": all_stats, "lost": lost}, now),
        price_answers.stats_table(all_stats, now, session.out.width),
        *price_answers.lost_remarks(lost),
    )


def _check(session: Session, *, set_aside: bool, json_: bool) -> int:
    """Checks the store's files; returns the exit code."""
    from pricing_data.store.facts import FOLDER, LOST
    from spotctl.cli.prices.fetch import writable_store
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    root = session.settings.price_store
    store = writable_store(session)
    gone = store.set_aside() if set_aside else ()
    inspection = store.inspect()
    lost = [] if inspection.flaws else store.facts(LOST)

    if json_:
        figures = {
            "store": str(root),
            **asdict(inspection),
            "set_aside": gone if set_aside else None,
            "lost": lost,
        }
        session.answer_json(as_json(price_answers.CHECKED, figures))
    else:
        session.say(*(f"set aside: {prices.file}, now in {root / FOLDER}" for prices in gone))
        session.remark(*price_answers.lost_remarks(lost))
        state = "sound" if not inspection.flaws else counted(len(inspection.flaws), "problem")
        session.say(
            f"{root}: {state}, {counted(inspection.files, 'file')}, "
            f"{counted(inspection.events, 'event')}"
        )
        session.say(*map(str, inspection.flaws), indent=2)

    return FAILED if inspection.flaws else DONE


def show(
    context: typer.Context,
    market: MarketArgument,
    last: LastOption = "",
    json_: JsonOption = False,
) -> None:
    """Show one market: current price, mean, discount, volatility, and a sparkline of its history.

    Example: spotctl prices show local/sim-east/sim-east-a/c4.xlarge
    """
    from pricing_data.market import Market
    from pricing_data.stats import describe
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    library = session.library
    series = recent(library.series(Market.parse(market)), last)
    market_stats = describe(series, library.catalog)
    now = wall_us()
    figures = library.interruptions(series.market)
    corrected = [made for made in library.store.corrections() if made.market == series.market]
    name = (series.market.cloud, series.market.instance_type)
    machine = library.catalog.instance_type(*name) if library.catalog.knows(*name) else None

    if json_:
        about = {
            "machine": machine,
            "interruptions": figures or None,
            "corrections": corrected or None,
        }
        session.answer_json(
            as_json(price_answers.STATS, market_stats, now)
            | as_json(price_answers.ABOUT_MARKET, about)
        )
    else:
        session.out.print(
            terminal.one_market(market_stats, series, (machine, figures), now, session.out.width)
        )
        session.remark(*map(terminal.correction, corrected))


def plot(
    context: typer.Context,
    markets: Annotated[list[str], typer.Argument(help="Markets, or globs over them.")],
    out: Annotated[Path, typer.Option(help="Output file: .png, .svg or .html.")],
    last: LastOption = "",
    json_: JsonOption = False,
) -> None:
    """Plot the prices of markets over time, with their on-demand prices.

    Example: spotctl lab prices plot 'local/sim-east/*/c4.xlarge' --last 7d --out prices.png
    """
    from pricing_data.library import Selection
    from pricing_data.stats import describe
    from spotctl.show.columns import as_json
    from spotctl.show.prices import plots as price_plots, price_answers

    session: Session = context.obj
    library = session.library
    selected = list(
        dict.fromkeys(market for glob in markets for market in library.require(Selection(glob)))
    )
    histories = [recent(series, last) for series in library.table(selected)]
    histories.sort(key=lambda series: selected.index(series.market))
    price_plots.draw([(series, describe(series, library.catalog)) for series in histories], out)
    session.answer(
        json_,
        as_json(price_answers.PICTURE, {"file": out, "markets": selected}),
        None,
        f"plotted {len(selected)} markets to {out}",
    )


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="SQL over the view prices (see above).")],
    memory: Annotated[
        str, typer.Option(help="End the query when it needs more memory: 500MB, 4GB.")
    ] = "1GB",
    timeout: Annotated[
        str, typer.Option(help="End the query when it takes longer: 30s, 1h.")
    ] = "5m",
    json_: JsonOption = False,
) -> None:
    """Query prices in SQL.

    Columns of the view `prices`: market, cloud, region, zone, instance_type, os, time (UTC),
    usd_per_hour.

    Example: spotctl lab prices sql "select market, max(usd_per_hour) from prices group by 1 order
    by 2 desc limit 5"
    """
    from pricing_data.query import QueryLimits, query as run
    from pricing_data.units import SECOND, parse_duration
    from spotctl.files.job.forms import SIZE
    from spotctl.home.process_memory import memory_ceiling
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    try:
        limits = QueryLimits(SIZE.read(memory), parse_duration(timeout) / SECOND)
    except ValueError:
        raise BadRequest(f"--memory {memory!r} is not {SIZE.expected}") from None

    library = session.library
    try:
        # The ceiling is also for the result and its text, which are not DuckDB's.
        with memory_ceiling(limits.memory_bytes):
            answer = library.over_segments(
                lambda segments, corrected: run(segments, corrected, query, limits)
            )
            session.answer(
                json_,
                as_json(price_answers.QUERY, {"rows": price_answers.rows(answer)}),
                terminal.rows(answer, session.out.width),
            )
    except MemoryError:
        raise limits.too_large() from None


def export(
    context: typer.Context,
    glob: GlobArgument = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output file: .csv, .csv.gz or .parquet. Default: CSV on stdout."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Export price history in the format of `prices import`.

    Example: spotctl lab prices export 'aws/us-east-1' --out history.csv.gz
    """
    from pricing_data.query import export as write, objects, write_csv
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    table = session.library.table(session.library.require(selection(glob, cloud, region, type_)))
    summary = {
        "file": None if out is None else str(out),
        "rows": len(table),
        "markets": len(table.markets),
    }

    if out is None and json_:
        session.answer_json(as_json(price_answers.EXPORTED, summary | {"history": objects(table)}))
        return
    if out is None:
        write_csv(table, sys.stdout.buffer)
        return

    write(table, out)
    exported = as_json(price_answers.EXPORTED, summary | {"history": None})
    session.answer(
        json_,
        exported,
        None,
        f"wrote {len(table):,} events of {len(table.markets)} markets to {out}",
    )


def egress(
    context: typer.Context,
    origin: Annotated[
        str, typer.Argument(help="Place the data is in: aws/us-east-1, or with a zone.")
    ],
    target: Annotated[
        str, typer.Argument(help="Place the data goes to: gcp/us-central1, or `internet`.")
    ],
    gb: Annotated[float, typer.Option(help="GB to send.")] = 1.0,
    json_: JsonOption = False,
) -> None:
    """Show the list price of sending data from one place to another.

    To add newer lists, use `prices import` with the columns
    asof,cloud,origin,target,above_gb,usd_per_gb.

    Example: spotctl lab prices egress aws/us-east-1 gcp/us-central1 --gb 500
    """
    from pricing_data.list_prices import Location, egress as price_of
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    lists = session.library.catalog.lists
    places = Location.parse(origin), None if target == "internet" else Location.parse(target)
    price = price_of(*places, None, lists)
    usd = price.usd(gb)
    if not json_:
        session.out.print(terminal.egress(price, gb, usd))
        return

    sent = {"origin": origin, "target": target, "gb": gb, "usd": usd, "price": price}
    session.answer_json(as_json(price_answers.EGRESS, sent))
