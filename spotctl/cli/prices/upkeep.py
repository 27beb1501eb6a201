"""`spotctl lab prices correct`, `backup` and `snapshot`: stored prices are set right, copied and shared."""

from pathlib import Path
from typing import Annotated

import typer

from pricing_data.units import DAY, counted, format_time, parse_time, parse_usd
from spotctl.cli.options import CloudOption
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us


def backup(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    json_: JsonOption = False,
) -> None:
    """Copy the price store to a new folder, and check the copy. Imports and fetches wait until it is done.

    To restore a backup, copy its files back into an empty store.

    Example: spotctl lab prices backup /mnt/backup/prices
    """
    from spotctl.clouds import wiring
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    store = wiring.price_store(session.settings, lambda: session.remark("waiting for another writer to finish"))
    inspection = store.back_up(folder)
    session.answer(
        json_,
        as_json(price_answers.BACKUP, {"folder": str(folder), "files": inspection.files, "events": inspection.events}),
        None,
        f"copied {counted(inspection.files, 'file')} with {counted(inspection.events, 'event')} to {folder};"
        f" to restore it, copy them back to {store.root}",
    )


def correct(
    context: typer.Context,
    market: Annotated[str, typer.Argument(help="A market: aws/us-east-1/us-east-1a/c4.xlarge (- for no zone).")] = "",
    time: Annotated[str, typer.Argument(help="Time of a stored price change: 2026-01-31T12:00:00Z.")] = "",
    price: Annotated[str, typer.Argument(help="The right price, in dollars per hour.")] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="The price never changed at this time.")] = False,
    reason: Annotated[str, typer.Option(help="Why; kept with the correction.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="List all corrections, oldest first.")] = False,
    json_: JsonOption = False,
) -> None:
    """Correct a stored price, or withdraw it. What was imported is kept, and the newest correction is in force.

    A correction also wins over later imports of the same price change. Times are those of `spotctl lab prices export`.

    Example: spotctl lab prices correct aws/us-east-1/us-east-1a/c4.xlarge 2026-01-31T12:00:00Z 0.0432 --reason typo

    Example: spotctl lab prices correct --list

    """
    from pricing_data.library import Library
    from pricing_data.market import Market
    from pricing_data.store.table import PriceCorrection
    from spotctl.clouds import wiring
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
        raise BadRequest("correct: say why with --reason TEXT; the reason is kept with the correction")
    store = wiring.price_store(session.settings, lambda: session.remark("waiting for another writer to finish"))
    right = None if withdraw else parse_usd(price)
    made = store.correct(PriceCorrection(Market.parse(market), parse_time(time), right, reason.strip(), wall_us()))
    Library(store).keep_statistics()
    session.answer(json_, as_json(price_answers.CORRECTION, made), None, terminal.correction(made))


def snapshot(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write to; its files can go on any web server or bucket.")],
    day: Annotated[
        list[str] | None, typer.Option(help="Day in UTC: 2026-01-31. Repeatable.", show_default="yesterday")
    ] = None,
    cloud: CloudOption = None,
    json_: JsonOption = False,
) -> None:
    """Write the prices observed on a day, a file for each cloud, which others import with `spotctl prices import`.

    Example: spotctl lab prices snapshot --out shared --day 2026-01-31
    """
    from pricing_data import snapshots
    from spotctl.clouds import wiring
    from spotctl.show.columns import as_json
    from spotctl.show.prices import price_answers

    session: Session = context.obj
    store = wiring.price_store(session.settings)
    days = day or [format_time(wall_us() - DAY)[:10]]
    clouds = cloud or sorted({market.cloud for market in store.markets() if not market.is_synthetic})
    written, lines = [], []
    for name in clouds:
        table = store.table(market for market in store.markets() if market.cloud == name)
        for date in days:
            taken = snapshots.take(table, name, date)
            if taken.table.markets or cloud:
                path = snapshots.write(taken, out)
                markets, events = len(taken.table.markets), len(taken.table)
                written.append({"file": str(path), "cloud": name, "day": date, "markets": markets, "events": events})
                lines.append(f"wrote {path}: {counted(markets, 'market')}, {events:,} events")
    session.answer(json_, as_json(price_answers.SNAPSHOTS, {"files": written}), None, *lines)
