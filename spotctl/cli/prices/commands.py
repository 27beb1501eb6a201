"""`spotctl prices`: import, fetch, show and export market data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.errors import AccessDenied, MissingCredentials
from spotctl.cli.boundary import CREDENTIALS, DONE, FAILED, USAGE
from spotctl.cli.options import (
    AcceleratorOption,
    CloudOption,
    GlobArgument,
    LastOption,
    RegionOption,
    TypeOption,
    VcpusOption,
    check_accelerator,
    check_regions,
    operating_system,
    recent,
    selection,
    start_of,
)
from spotctl.cli.prices.best import best
from spotctl.cli.prices.egress import egress
from spotctl.cli.prices.export import export
from spotctl.cli.prices.sources import sources as sources_command
from spotctl.cli.prices.sql import sql
from spotctl.cli.prices.upkeep import backup, check, correct, corrections
from spotctl.cli.prices.watch import watch
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.errors import CloudError
    from pricing_data.ingest import TaskReport

app = typer.Typer(help="Import, fetch, show and export spot prices.", no_args_is_help=True)
app.command()(best)
app.command()(watch)
app.command()(egress)
app.command("sources")(sources_command)


@app.command("import")
def import_(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="CSV (plain or gzip), or JSON from the AWS command line.")
    ] = None,
    on_demand: Annotated[list[Path] | None, typer.Option(help="Table of on-demand prices. Repeatable.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Reject a file with a bad row (default: skip the row).")
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Import price changes, on-demand tables and interruption buckets from files. Imports are idempotent.

    Example: spotctl prices import history.csv.gz --on-demand list-prices.csv
    """
    from pricing_data.ingest import ingest
    from pricing_data.library import Library
    from pricing_data.sources.layouts import ON_DEMAND
    from spotctl.cli.progress import reading
    from spotctl.clouds import wiring
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers

    session: Session = context.obj
    inputs = [(path, None) for path in files or []] + [(path, ON_DEMAND.name) for path in on_demand or []]
    if not inputs:
        raise BadRequest("import: no file given (usage: spotctl prices import FILE...)")
    store = wiring.price_store(session.settings, _remark_once(session, "waiting for another writer to finish"))
    reports = []
    with reading(session, [path for path, _ in inputs]) as bar:
        for path, layout in inputs:
            reports.append(ingest(store, path, strict=strict, layout=layout, on_progress=bar(path)))
            if reports[-1].broken:
                break
        else:
            store.compact()
            Library(store).keep_statistics()
    session.answer(json_, as_json(answers.FILES, {"files": reports}), terminal.imported(reports))
    for report in reports:
        session.remark(*terminal.complaints(report))
    if reports[-1].broken:
        raise reports[-1].broken
    return USAGE if any(report.failure for report in reports) else DONE


@app.command()
def fetch(
    context: typer.Context,
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only instance types that match this glob. Repeatable.")
    ] = None,
    os_: Annotated[
        list[str] | None,
        typer.Option("--os", help="Operating systems: linux, windows, rhel, suse, or all. Repeatable. Default: linux."),
    ] = None,
    product: Annotated[
        list[str] | None, typer.Option(help="Operating system in a cloud's words: 'Linux/UNIX'. Repeatable.")
    ] = None,
    since: Annotated[str, typer.Option(help="How far back: 90d, 36h; or a time: 2026-01-31.")] = "90d",
    json_: JsonOption = False,
) -> int:
    """Fetch price history, instance types, on-demand prices and interruption rates from the clouds' APIs.

    First prints an estimate of requests, size and time. Each fetch continues where the last one ended. An error in one
    cloud or region does not affect the others. Many sources need no account (see spotctl lab prices sources); clouds
    without credentials are otherwise skipped unless named with --cloud.

    Example: spotctl prices fetch --cloud aws --region us-east-1 --type 'c6i.*' --since 30d
    """
    from pricing_data.ingest import fetch as run
    from pricing_data.library import Library
    from pricing_data.sources.base import FetchRequest
    from spotctl.cli.progress import fetching
    from spotctl.clouds import wiring
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers
    from spotctl.show.prices.fetch_plan import announced

    session: Session = context.obj
    store = wiring.price_store(session.settings, _remark_once(session, "waiting for another writer to finish"))
    now = wall_us()
    sources = wiring.sources(session.settings, cloud or ())
    check_regions("fetch", region or ())
    request = FetchRequest(
        start_of(since, now), now, tuple(region or ()), tuple(type_ or ()), _systems(os_, product), store.covered
    )
    workers = session.settings.fetch_workers
    with fetching(session) as show:
        reports = run(
            store,
            sources,
            request,
            workers=workers,
            on_plan=lambda tasks: session.remark(*(() if json_ else announced(tasks, request, workers))),
            on_progress=show,
        )
    Library(store).keep_statistics()
    if not reports:
        raise BadRequest(f"fetch: no such region in {', '.join(source.cloud for source in sources)}")
    session.answer(json_, as_json(answers.TASKS, {"tasks": reports}), terminal.fetched(reports))
    return _fetch_exit(session, reports, named=bool(cloud))


@app.command()
def ls(
    context: typer.Context,
    glob: GlobArgument = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    accelerator: AcceleratorOption = "",
    vcpus: VcpusOption = "",
    json_: JsonOption = False,
) -> None:
    """List markets, one per line.

    Example: spotctl lab prices ls 'aws/*/*/p3.*' --vcpus 8..32
    """
    from pricing_data.freshness import freshness_of_stored
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.freshness import fetch_command
    from spotctl.show.prices import answers

    session: Session = context.obj
    check_accelerator(session.library.catalog, accelerator)
    markets = session.library.select(selection(glob, cloud, region, type_, accelerator, vcpus))
    if json_:
        clouds = freshness_of_stored(session.library, markets)
        now, lost = wall_us(), session.library.store.lost()
        fetch = fetch_command(clouds, now, region or ())
        answer = {"markets": markets, "clouds": clouds, "fetch": fetch, "lost": lost}
        session.answer_json(as_json(answers.MARKETS, answer, now))
    elif markets:
        session.remark(*answers.lost_remarks(session.library.store.lost()))
        session.out.print(terminal.markets(markets), soft_wrap=True)
    else:
        check_regions("ls", region or ())
        session.remark("no matching market (get price history with: spotctl prices import, or spotctl prices fetch)")


@app.command()
def show(
    context: typer.Context,
    market: Annotated[str, typer.Argument(help="A market: aws/us-east-1/us-east-1a/c4.xlarge (- for no zone).")],
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
    from spotctl.show.prices import answers

    session: Session = context.obj
    library = session.library
    series = recent(library.series(Market.parse(market)), last)
    market_stats, now = describe(series, library.catalog), wall_us()
    figures = library.interruptions(series.market)
    corrected = [made for made in library.store.corrections() if made.market == series.market]
    name = (series.market.cloud, series.market.instance_type)
    machine = library.catalog.instance_type(*name) if library.catalog.knows(*name) else None
    if json_:
        about = {"machine": machine, "interruptions": figures or None, "corrections": corrected or None}
        session.answer_json(as_json(answers.STATS, market_stats, now) | as_json(answers.ABOUT_MARKET, about))
    else:
        session.out.print(terminal.one_market(market_stats, series, (machine, figures), now, session.out.width))
        session.remark(*map(terminal.correction, corrected))


@app.command()
def stats(
    context: typer.Context,
    glob: GlobArgument = "",
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    accelerator: AcceleratorOption = "",
    vcpus: VcpusOption = "",
    last: LastOption = "",
    json_: JsonOption = False,
) -> None:
    """Compare markets: mean, discount, changes and spikes per day, hours above on-demand, outliers, age.

    Example: spotctl lab prices stats 'aws/us-east-1/*/m4.*'
    """
    from pricing_data.stats import describe
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers

    session: Session = context.obj
    library = session.library
    check_accelerator(library.catalog, accelerator)
    markets = library.require(selection(glob, cloud, region, type_, accelerator, vcpus))
    if last:
        all_stats = library.each(markets, lambda series: describe(recent(series, last), library.catalog))
    else:
        all_stats = library.statistics(markets)
    now, lost = wall_us(), library.store.lost()
    session.answer(
        json_,
        as_json(answers.STATISTICS, {"markets": all_stats, "lost": lost}, now),
        terminal.stats(all_stats, now, session.out.width),
        *answers.lost_remarks(lost),
    )


@app.command()
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
    from spotctl.show.prices import answers, plots as price_plots

    session: Session = context.obj
    library = session.library
    selected = list(dict.fromkeys(market for glob in markets for market in library.require(Selection(glob))))
    histories = [recent(series, last) for series in library.table(selected)]
    histories.sort(key=lambda series: selected.index(series.market))
    price_plots.draw([(series, describe(series, library.catalog)) for series in histories], out)
    session.answer(
        json_,
        as_json(answers.PICTURE, {"file": out, "markets": selected}),
        None,
        f"plotted {len(selected)} markets to {out}",
    )


@app.command()
def gaps(
    context: typer.Context,
    glob: GlobArgument = "",
    json_: JsonOption = False,
) -> None:
    """List gaps: seams between downloads, times without observation, markets not watched lately.

    Example: spotctl lab prices gaps 'aws/sa-east-1'
    """
    from pricing_data.stats import find_gaps
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers

    session: Session = context.obj
    library = session.library
    now = wall_us()
    report = find_gaps(library.table(library.require(selection(glob))), now)
    if json_:
        session.answer_json(as_json(answers.GAPS, report))
    else:
        session.say(*terminal.gaps(report, now), indent=7)


app.command()(export)
app.command()(sql)
app.command()(check)
app.command()(backup)
app.command()(correct)
app.command()(corrections)


def _systems(names: list[str] | None, products: list[str] | None) -> tuple[str, ...]:
    """The operating systems to fetch; empty means all."""
    from pricing_data.market import os_of_product

    chosen = [operating_system(name, "all") for name in names or ()] + [os_of_product(name) for name in products or ()]
    return () if "all" in chosen else tuple(dict.fromkeys(chosen)) or ("linux",)


def _remark_once(session: Session, text: str) -> Callable[[], None]:
    """Prints a remark once: two long imports wait for each other at every batch."""
    return cache(lambda: session.remark(text))


def _fetch_exit(session: Session, reports: list[TaskReport], *, named: bool) -> int:
    """Missing credentials fail a fetch only if their cloud was named, or if nothing else was fetched."""
    failures = [report.failure for report in reports if report.failure is not None]
    for line in dict.fromkeys(map(str, failures)):
        session.remark(f"spotctl: {line}")
    refused = [failure for failure in failures if isinstance(failure, MissingCredentials | AccessDenied)]
    optional: list[CloudError] = [] if named or len(failures) == len(reports) else list(refused)
    # A part without which all current prices came is no failure, even if its cloud was named.
    came = {report.cloud for report in reports if report.failure is None}
    optional += [report.failure for report in reports if report.optional and report.failure and report.cloud in came]
    counted = [failure for failure in failures if failure not in optional]
    if not counted:
        return DONE
    return CREDENTIALS if any(failure in refused for failure in counted) else FAILED
