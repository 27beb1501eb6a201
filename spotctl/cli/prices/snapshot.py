"""`spotctl lab prices snapshot`: share observed prices as signed files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.errors import BadInput
from pricing_data.units import DAY, counted, format_time
from spotctl.cli.boundary import DONE, USAGE
from spotctl.cli.options import CloudOption
from spotctl.cli.session import JsonOption, Session
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from pricing_data.snapshots import PriceSnapshot

app = typer.Typer(help="Share prices as signed files, one per cloud and day.", no_args_is_help=True)


@app.command()
def make(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write to; its files can go on any web server or bucket.")],
    day: Annotated[
        list[str] | None, typer.Option(help="Day in UTC: 2026-01-31. Repeatable.", show_default="yesterday")
    ] = None,
    cloud: CloudOption = None,
    json_: JsonOption = False,
) -> None:
    """Write the prices observed on a day, signed with this installation's key.

    Example: spotctl lab prices snapshot make --out shared --day 2026-01-31

    \f

    Fields:
        signer: public key with which the files are signed
        files: files that were written
        files[].file: its path
        files[] -> _counts
    """
    from pricing_data import snapshots
    from spotctl.clouds import wiring

    session: Session = context.obj
    store = wiring.price_store(session.settings)
    key = snapshots.load_key(session.settings.home / "snapshot-key")
    days = day or [format_time(wall_us() - DAY)[:10]]
    clouds = cloud or sorted({market.cloud for market in store.markets() if not market.is_synthetic})
    written = []
    for name in clouds:
        table = store.table(market for market in store.markets() if market.cloud == name)
        for date in days:
            snapshot = snapshots.take(table, name, date)
            if snapshot.table.markets or cloud:
                written.append((snapshots.write(snapshot, out, key), snapshot))
    if json_:
        files = [{"file": str(path), **_counts(snapshot)} for path, snapshot in written]
        session.answer_json({"signer": snapshots.public_key(key), "files": files})
        return
    for path, snapshot in written:
        session.remark(
            f"wrote {path}: {counted(len(snapshot.table.markets), 'market')}, {len(snapshot.table):,} events"
        )
    session.remark(
        f"signed with {snapshots.public_key(key)}; others import it with: spotctl lab prices snapshot add FILE"
        " --trust KEY"
    )


@app.command()
def add(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Snapshots: files, or addresses that begin with https://.")],
    trust: Annotated[list[str] | None, typer.Option(help="Public key of a signer to trust. Repeatable.")] = None,
    json_: JsonOption = False,
) -> int:
    """Check the signatures of others' snapshots and import them. Importing a snapshot twice changes nothing.

    Example: spotctl lab prices snapshot add shared/aws-2026-01-31.parquet --trust KEY

    \f

    Fields:
        files: files in the order given
        files[].file: its name or address
        files[] -> _counts
        files[].added: price events that are new
        files[].known: price events that were stored already
        files[].conflicts: price events that contradict stored ones
        files[].failure: why the file was refused; null if it was imported
    """
    from pricing_data import snapshots
    from pricing_data.library import Library
    from spotctl.clouds import wiring
    from spotctl.files.download import local_copy

    session: Session = context.obj
    store = wiring.price_store(session.settings)
    own = session.settings.home / "snapshot-key"
    trusted = {*(trust or ()), *([snapshots.public_key(snapshots.load_key(own))] if own.exists() else ())}
    results = []
    for name in files:
        try:
            with local_copy(name) as path:
                snapshot = snapshots.read(path)
            if snapshot.signer not in trusted:
                raise BadInput(
                    f"{name}: signed by {snapshot.signer}, which is not trusted (add --trust {snapshot.signer})"
                )
            done = store.commit(snapshot.fetched())
            result = {**_counts(snapshot), "added": done.added, "known": done.known, "conflicts": done.conflicts}
            results.append({"file": name, **result, "failure": None})
            session.remark(f"{name}: {done.added:,} new, {done.known:,} known, {counted(done.conflicts, 'conflict')}")
        except BadInput as error:
            results.append({"file": name, "failure": str(error)})
            session.remark(f"spotctl: {error}")
    store.compact()
    Library(store).keep_statistics()
    if json_:
        session.answer_json({"files": results})
    return USAGE if any(result["failure"] for result in results) else DONE


def _counts(snapshot: PriceSnapshot) -> dict[str, object]:
    """The numbers of markets and events in a snapshot.

    Fields:
        cloud: cloud of the prices
        day: day of the prices
        markets: number of markets
        events: number of price events
    """
    table = snapshot.table
    return {"cloud": snapshot.cloud, "day": snapshot.day, "markets": len(table.markets), "events": len(table)}
