"""`spotctl prices fetch` and `import`, and `spotctl lab prices backup`, `correct` and
`snapshot`: where prices come from, and how the store is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.errors import AccessDenied, MissingCredentials
from pricing_data.units import DAY, counted, format_time, parse_time, parse_usd
from spotctl.cli.boundary import CREDENTIALS, DONE, FAILED, USAGE
from spotctl.cli.options import (
    CloudOption,
    RegionOption,
    TypeOption,
    check_regions,
    operating_system,
    start_of,
)
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.errors import CloudError
    from pricing_data.ingest import FileReport, TaskReport
    from pricing_data.sources.base import FetchRequest, Source
    from pricing_data.store import PriceStore


def import_(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="CSV (plain or gzip), JSON from the AWS command line, or a snapshot (.parquet); "
            "also https://..."
        ),
    ] = None,
    on_demand: Annotated[
        list[str] | None, typer.Option(help="Table of on-demand prices. Repeatable.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Reject a file with a bad row (default: skip the row).")
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Import price changes, on-demand tables, interruption buckets and snapshots from files.
    Imports are idempotent.

    Example: spotctl prices import history.csv.gz --on-demand list-prices.csv

    Example: spotctl prices import https://prices.example.org/aws-2026-01-31.parquet
    """
    from pricing_data.ingest import ingest, ingest_snapshot
    from pricing_data.library import Library
    from pricing_data.sources.layouts import ON_DEMAND
    from spotctl.cli.progress import reading
    from spotctl.files.user_files import local_copy
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    inputs = [(name, None) for name in files or []] + [
        (name, ON_DEMAND.name) for name in on_demand or []
    ]
    if not inputs:
        raise BadRequest("import: no file given (usage: spotctl prices import FILE...)")

    store = writable_store(session)
    reports: list[FileReport] = []
    with ExitStack() as stack:
        paths = [stack.enter_context(local_copy(name)) for name, _ in inputs]
        bar = stack.enter_context(reading(session, paths))
        for path, (name, layout) in zip(paths, inputs, strict=True):
            if path.suffix == ".parquet":
                reports.append(ingest_snapshot(store, path))
            else:
                reports.append(
                    ingest(store, path, strict=strict, layout=layout, on_progress=bar(path))
                )
            reports[-1].file = name
            if reports[-1].broken:
                break
        else:
            store.compact()
            Library(store).keep_statistics()

    session.answer(
        json_, as_json(price_answers.FILES, {"files": reports}), terminal.imported(reports)
    )
    for report in reports:
        session.remark(*terminal.complaints(report))

    if any("signature" in report.unused for report in reports):
        session.remark(
            "signatures of snapshots are not checked any more; let only those write to their place "
            "you trust"
        )

    if reports[-1].broken:
        raise reports[-1].broken
    return USAGE if any(report.failure for report in reports) else DONE


def fetch(
    context: typer.Context,
    cloud: CloudOption = None,
    region: RegionOption = None,
    type_: TypeOption = None,
    os_: Annotated[
        list[str] | None,
        typer.Option(
            "--os",
            help="Operating systems: linux, windows, rhel, suse, or all; or in a cloud's words: "
            "'Linux/UNIX'. Repeatable. Default: linux.",
        ),
    ] = None,
    since: Annotated[
        str, typer.Option(help="How far back: 90d, 36h; or a time: 2026-01-31.")
    ] = "90d",
    history: Annotated[
        str,
        typer.Option(
            help="Instead, one look a day at the public catalog since this time: 90d, or "
            "2026-01-31. Needs git, and no account."
        ),
    ] = "",
    most_mb: Annotated[
        int, typer.Option(help="With --history: megabytes to fetch for each cloud, at most.", min=1)
    ] = 500,
    sources_: Annotated[
        bool,
        typer.Option("--sources", help="Only list what can be fetched, and what each needs."),
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Fetch price history, instance types, on-demand prices and interruption rates from the clouds'
    APIs.

    First prints an estimate of requests, size and time. Each fetch continues where the last one
    ended. An error in one cloud or region does not affect the others. Many sources need no account
    (--sources lists them); clouds without credentials are otherwise skipped unless named
    with --cloud.

    Example: spotctl prices fetch --cloud aws --region us-east-1 --type 'c6i.*' --since 30d

    Example: spotctl prices fetch --cloud aws --history 2026-09-01
    """
    from pricing_data.ingest import fetch as run
    from pricing_data.library import Library
    from pricing_data.sources.base import FetchRequest
    from spotctl.cli.progress import fetching
    from spotctl.clouds import wiring
    from spotctl.show.columns import as_json, table
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    if sources_:
        _say_sources(session, json_=json_)
        return DONE
    store = writable_store(session)
    now = wall_us()
    sources: Sequence[Source] = wiring.sources(session.settings, cloud or ())
    if history:
        sources = wiring.catalog_histories(session.settings, cloud or (), most_mb << 20)
    check_regions("fetch", region or ())
    chosen = [operating_system(name, "all") for name in os_ or ("linux",)]
    systems = () if "all" in chosen else tuple(dict.fromkeys(chosen))
    request = FetchRequest(
        start_of(history or since, now),
        now,
        tuple(region or ()),
        tuple(type_ or ()),
        systems,
        store.covered,
    )
    workers = session.settings.fetch_workers

    with fetching(session) as show:
        reports = run(
            store,
            sources,
            request,
            workers=workers,
            on_plan=lambda tasks: session.remark(
                *(() if json_ else _announced(tasks, request, workers))
            ),
            on_progress=show,
        )

    Library(store).keep_statistics()
    session.remark(*(note for report in reports for note in report.notes))
    if not reports:
        raise BadRequest(
            f"fetch: no such region in {', '.join(source.cloud for source in sources)}"
        )

    session.answer(
        json_,
        as_json(price_answers.TASKS, {"tasks": reports}),
        table(price_answers.FETCHED, reports, names=3),
    )

    return _fetch_exit(session, reports, named=bool(cloud))


def _announced(tasks: Sequence[TaskReport], request: FetchRequest, workers: int) -> list[str]:
    """About how many calls, rows, minutes and megabytes, a line in all. Nothing if no task can
    run."""
    from pricing_data.sources.base import BYTES_PER_ROW, Effort, effort, minutes
    from spotctl.clouds.wiring import prices_of

    planned = [
        (task.cloud, task.what)
        for task in tasks
        if not task.done and not (task.optional and task.region == "-")
    ]

    if not planned:
        return []

    efforts = (prices_of(cloud).EFFORTS.get(what, Effort()) for cloud, what in planned)
    total = effort(efforts, request.until - request.since, some_types=bool(request.types))
    regions = Counter(
        cloud
        for cloud, region in {(task.cloud, task.region) for task in tasks if task.region != "-"}
    )
    places = ", ".join(
        f"{cloud} ({counted(count, 'region')})" for cloud, count in sorted(regions.items())
    )
    wait = minutes(total, workers)
    duration = f"{wait:,.0f} minutes" if wait >= 1.5 else "no more than two minutes"
    left = [
        option
        for option, given in (("--region", request.regions), ("--type", request.types))
        if not given
    ]

    disk_megabytes = total.rows * BYTES_PER_ROW / 1e6
    narrower = f" (narrow it with {' and '.join(left)})" if left else ""
    return [
        f"asks {places or ', '.join(sorted({cloud for cloud, _ in planned}))}: about "
        f"{total.calls:,.0f} requests,"
        f" {total.megabytes:,.0f} MB to download, {total.rows:,.0f} rows, "
        f"{disk_megabytes:,.1f} MB of disk,"
        f" {duration}{narrower}"
    ]


def _say_sources(session: Session, *, json_: bool) -> None:
    """Lists what can be fetched."""
    from pricing_data.sources.base import FILES
    from spotctl.clouds.wiring import prices_of
    from spotctl.home.cloud import rented_clouds
    from spotctl.show.columns import as_json, table
    from spotctl.show.prices import price_answers

    needed = [
        *(needs for cloud in sorted(rented_clouds()) for needs in prices_of(cloud).NEEDS),
        FILES,
    ]
    session.answer(
        json_,
        as_json(price_answers.SOURCES, {"sources": needed}),
        table(price_answers.NEEDS, needed, names=4),
    )


def writable_store(session: Session) -> PriceStore:
    """The price store, which says that another process writes to it.

    It says so once: two long imports wait for each other at every batch.
    """
    from spotctl.clouds import wiring

    return wiring.price_store(
        session.settings, cache(partial(session.remark, "waiting for another writer to finish"))
    )


def _fetch_exit(session: Session, reports: list[TaskReport], *, named: bool) -> int:
    """Missing credentials fail a fetch only if their cloud was named, or if nothing else was
    fetched.
    """
    failures = [report.failure for report in reports if report.failure is not None]
    for line in dict.fromkeys(map(str, failures)):
        session.remark(f"spotctl: {line}")
    refused = [
        failure for failure in failures if isinstance(failure, MissingCredentials | AccessDenied)
    ]
    optional: list[CloudError] = [] if named or len(failures) == len(reports) else list(refused)

    # A part without which all current prices came is no failure, even if its cloud was named.
    came = {report.cloud for report in reports if report.failure is None}
    optional += [
        report.failure
        for report in reports
        if report.optional and report.failure and report.cloud in came
    ]

    counted = [failure for failure in failures if failure not in optional]
    if not counted:
        return DONE
    return CREDENTIALS if any(failure in refused for failure in counted) else FAILED


def backup(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    json_: JsonOption = False,
) -> None:
    """Copy the price store to a new folder, and check the copy. Imports and fetches wait until it
    is done.

    To restore a backup, copy its files back into an empty store.

    Example: spotctl lab prices backup /mnt/backup/prices
    """
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    store = writable_store(session)
    inspection = store.back_up(folder)
    session.answer(
        json_,
        as_json(
            price_answers.BACKUP,
            {"folder": str(folder), "files": inspection.files, "events": inspection.events},
        ),
        None,
        f"copied {counted(inspection.files, 'file')} with {counted(inspection.events, 'event')} to "
        f"{folder}; to restore it, copy them back to {store.root}",
    )


def correct(
    context: typer.Context,
    market: Annotated[
        str, typer.Argument(help="A market: aws/us-east-1/us-east-1a/c4.xlarge (- for no zone).")
    ] = "",
    time: Annotated[
        str, typer.Argument(help="Time of a stored price change: 2026-01-31T12:00:00Z.")
    ] = "",
    price: Annotated[str, typer.Argument(help="The right price, in dollars per hour.")] = "",
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="The price never changed at this time.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why; kept with the correction.")] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="List all corrections, oldest first.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Correct a stored price, or withdraw it. What was imported is kept, and the newest correction
    is in force.

    A correction also wins over later imports of the same price change. Times are those of `spotctl
    lab prices export`.

    Example: spotctl lab prices correct aws/us-east-1/us-east-1a/c4.xlarge 2026-01-31T12:00:00Z
    0.0432 --reason typo

    Example: spotctl lab prices correct --list

    """
    from pricing_data.library import Library
    from pricing_data.market import Market
    from pricing_data.store.table import PriceCorrection
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    if list_:
        if market:
            raise BadRequest("correct: --list lists all corrections, and takes no market")
        all_made = session.library.store.corrections()
        if json_:
            session.answer_json(as_json(price_answers.CORRECTIONS, {"corrections": all_made}))
            return
        session.say(*map(terminal.correction, all_made))
        if not all_made:
            session.remark("no stored price was corrected")
        return
    if not (market and time):
        raise BadRequest("correct: name a market and the time of a price change, or give --list")
    if bool(price) == withdraw:
        raise BadRequest("correct: name the right price, or --withdraw the price change")

    if not reason.strip():
        raise BadRequest(
            "correct: say why with --reason TEXT; the reason is kept with the correction"
        )

    store = writable_store(session)
    right = None if withdraw else parse_usd(price)
    made = store.correct(
        PriceCorrection(Market.parse(market), parse_time(time), right, reason.strip(), wall_us())
    )
    Library(store).keep_statistics()
    session.answer(json_, as_json(price_answers.CORRECTION, made), None, terminal.correction(made))


def snapshot(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option(help="Folder to write to; its files can go on any web server or bucket.")
    ],
    day: Annotated[
        list[str] | None,
        typer.Option(help="Day in UTC: 2026-01-31. Repeatable.", show_default="yesterday"),
    ] = None,
    cloud: CloudOption = None,
    json_: JsonOption = False,
) -> None:
    """Write the prices observed on a day, a file for each cloud, which others import with `spotctl
    prices import`.

    Example: spotctl lab prices snapshot --out shared --day 2026-01-31
    """
    from pricing_data import snapshots
    from spotctl.clouds import wiring
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    store = wiring.price_store(session.settings)
    days = day or [format_time(wall_us() - DAY)[:10]]
    clouds = cloud or sorted(
        {market.cloud for market in store.markets() if not market.is_synthetic}
    )
    written = []
    lines = []

    for name in clouds:
        table = store.table(market for market in store.markets() if market.cloud == name)
        for date in days:
            taken = snapshots.take(table, name, date)
            if taken.table.markets or cloud:
                path = snapshots.write(taken, out)
                markets = len(taken.table.markets)
                events = len(taken.table)
                written.append(
                    {
                        "file": str(path),
                        "cloud": name,
                        "day": date,
                        "markets": markets,
                        "events": events,
                    }
                )
                lines.append(f"wrote {path}: {counted(markets, 'market')}, {events:,} events")

    session.answer(json_, as_json(price_answers.SNAPSHOTS, {"files": written}), None, *lines)
