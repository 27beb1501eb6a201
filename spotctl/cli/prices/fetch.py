"""`spotctl prices fetch` and `import`, and `spotctl lab prices sources`: where prices come from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.errors import AccessDenied, MissingCredentials
from spotctl.cli.boundary import CREDENTIALS, DONE, FAILED, USAGE
from spotctl.cli.options import CloudOption, RegionOption, TypeOption, check_regions, operating_system, start_of
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.errors import CloudError
    from pricing_data.ingest import FileReport, TaskReport


def import_(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="CSV (plain or gzip), JSON from the AWS command line, or a snapshot (.parquet); also https://..."
        ),
    ] = None,
    on_demand: Annotated[list[str] | None, typer.Option(help="Table of on-demand prices. Repeatable.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Reject a file with a bad row (default: skip the row).")
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Import price changes, on-demand tables, interruption buckets and snapshots from files. Imports are idempotent.

    Example: spotctl prices import history.csv.gz --on-demand list-prices.csv

    Example: spotctl prices import https://prices.example.org/aws-2026-01-31.parquet
    """
    from pricing_data.ingest import ingest, ingest_snapshot
    from pricing_data.library import Library
    from pricing_data.sources.layouts import ON_DEMAND
    from spotctl.cli.progress import reading
    from spotctl.clouds import wiring
    from spotctl.files.user_files import local_copy
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    inputs = [(name, None) for name in files or []] + [(name, ON_DEMAND.name) for name in on_demand or []]
    if not inputs:
        raise BadRequest("import: no file given (usage: spotctl prices import FILE...)")
    store = wiring.price_store(session.settings, _remark_once(session, "waiting for another writer to finish"))
    reports: list[FileReport] = []
    with ExitStack() as stack:
        paths = [stack.enter_context(local_copy(name)) for name, _ in inputs]
        bar = stack.enter_context(reading(session, paths))
        for path, (name, layout) in zip(paths, inputs, strict=True):
            if path.suffix == ".parquet":
                reports.append(ingest_snapshot(store, path))
            else:
                reports.append(ingest(store, path, strict=strict, layout=layout, on_progress=bar(path)))
            reports[-1].file = name
            if reports[-1].broken:
                break
        else:
            store.compact()
            Library(store).keep_statistics()
    session.answer(json_, as_json(price_answers.FILES, {"files": reports}), terminal.imported(reports))
    for report in reports:
        session.remark(*terminal.complaints(report))
    if any("signature" in report.unused for report in reports):
        session.remark(
            "signatures of snapshots are not checked any more; let only those write to their place you trust"
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
            help="Operating systems: linux, windows, rhel, suse, or all; or in a cloud's words: 'Linux/UNIX'."
            " Repeatable. Default: linux.",
        ),
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
    from spotctl.show.prices import price_answers
    from spotctl.show.prices.fetch_plan import announced

    session: Session = context.obj
    store = wiring.price_store(session.settings, _remark_once(session, "waiting for another writer to finish"))
    now = wall_us()
    sources = wiring.sources(session.settings, cloud or ())
    check_regions("fetch", region or ())
    chosen = [operating_system(name, "all") for name in os_ or ("linux",)]
    systems = () if "all" in chosen else tuple(dict.fromkeys(chosen))
    request = FetchRequest(start_of(since, now), now, tuple(region or ()), tuple(type_ or ()), systems, store.covered)
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
    session.answer(json_, as_json(price_answers.TASKS, {"tasks": reports}), terminal.fetched(reports))
    return _fetch_exit(session, reports, named=bool(cloud))


def sources(context: typer.Context, json_: JsonOption = False) -> None:
    """List the sources of prices: what each provides and needs. Most need no account.

    Example: spotctl lab prices sources
    """
    from pricing_data.sources.base import FILES
    from spotctl.clouds.wiring import prices_of
    from spotctl.home.cloud import rented_clouds
    from spotctl.show.columns import as_json
    from spotctl.show.prices import fetch_plan, price_answers

    session: Session = context.obj
    needed = [*(needs for cloud in sorted(rented_clouds()) for needs in prices_of(cloud).NEEDS), FILES]
    session.answer(json_, as_json(price_answers.SOURCES, {"sources": needed}), fetch_plan.needs(needed))


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
