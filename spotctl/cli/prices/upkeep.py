"""`spotctl lab prices check`, `backup` and `correct`: keep the stored prices whole and right."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pricing_data.units import counted, parse_time, parse_usd
from spotctl.cli.boundary import DONE, FAILED
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us


def check(
    context: typer.Context,
    set_aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Continue without damaged or missing prices; their files are kept."),
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Read every file of the price store, and list damaged, missing and unknown files. Changes nothing.

    With --set-aside, files of prices that cannot be read leave the store, so that all other prices can be used again.
    Commands that show prices then say which period has lost some, and the next fetch brings again what the clouds
    still offer.

    Exit codes: 0 the store is sound, 1 something is wrong.

    Example: spotctl lab prices check
    """
    from pricing_data.store.facts import FOLDER
    from spotctl.clouds import wiring
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers

    session: Session = context.obj
    root = session.settings.price_store
    store = wiring.price_store(session.settings, lambda: session.remark("waiting for another writer to finish"))
    gone = store.set_aside() if set_aside else ()
    inspection = store.inspect()
    lost = [] if inspection.flaws else store.lost()
    if json_:
        figures = {"store": str(root), **asdict(inspection), "set_aside": gone if set_aside else None, "lost": lost}
        session.answer_json(as_json(answers.CHECKED, figures))
    else:
        session.say(*(f"set aside: {prices.file}, now in {root / FOLDER}" for prices in gone))
        session.remark(*answers.lost_remarks(lost))
        state = "sound" if not inspection.flaws else counted(len(inspection.flaws), "problem")
        session.say(f"{root}: {state}, {counted(inspection.files, 'file')}, {counted(inspection.events, 'event')}")
        session.say(*map(str, inspection.flaws), indent=2)
    return FAILED if inspection.flaws else DONE


def backup(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    json_: JsonOption = False,
) -> None:
    """Copy the price store to a new folder, and check the copy. Imports and fetches wait until it is done.

    To restore a backup, copy its files back into an empty store.

    Example: spotctl lab prices backup /mnt/backup/prices

    \f

    Fields:
        folder: the copy
        files: number of files in it
        events: number of price changes in it
    """
    from spotctl.clouds import wiring

    session: Session = context.obj
    store = wiring.price_store(session.settings, lambda: session.remark("waiting for another writer to finish"))
    inspection = store.back_up(folder)
    session.answer(
        json_,
        {"folder": str(folder), "files": inspection.files, "events": inspection.events},
        None,
        f"copied {counted(inspection.files, 'file')} with {counted(inspection.events, 'event')} to {folder};"
        f" to restore it, copy them back to {store.root}",
    )


def correct(
    context: typer.Context,
    market: Annotated[str, typer.Argument(help="A market: aws/us-east-1/us-east-1a/c4.xlarge (- for no zone).")],
    time: Annotated[str, typer.Argument(help="Time of a stored price change: 2026-01-31T12:00:00Z.")],
    price: Annotated[str, typer.Argument(help="The right price, in dollars per hour.")] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="The price never changed at this time.")] = False,
    reason: Annotated[str, typer.Option(help="Why; kept with the correction.")] = "",
    json_: JsonOption = False,
) -> None:
    """Correct a stored price, or withdraw it. What was imported is kept, and the newest correction is in force.

    A correction also wins over later imports of the same price change. Times are those of `spotctl lab prices export`.

    Example: spotctl lab prices correct aws/us-east-1/us-east-1a/c4.xlarge 2026-01-31T12:00:00Z 0.0432 --reason typo
    """
    from pricing_data.library import Library
    from pricing_data.market import Market
    from pricing_data.store.table import PriceCorrection
    from spotctl.clouds import wiring
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers

    session: Session = context.obj
    if bool(price) == withdraw:
        raise BadRequest("correct: name the right price, or --withdraw the price change")
    if not reason.strip():
        raise BadRequest("correct: say why with --reason TEXT; the reason is kept with the correction")
    store = wiring.price_store(session.settings, lambda: session.remark("waiting for another writer to finish"))
    right = None if withdraw else parse_usd(price)
    made = store.correct(PriceCorrection(Market.parse(market), parse_time(time), right, reason.strip(), wall_us()))
    Library(store).keep_statistics()
    session.answer(json_, as_json(answers.CORRECTION, made), None, terminal.correction(made))


def corrections(context: typer.Context, json_: JsonOption = False) -> None:
    """List all corrections of stored prices, oldest first.

    Example: spotctl lab prices corrections
    """
    from spotctl.show import terminal
    from spotctl.show.columns import as_json
    from spotctl.show.prices import answers

    session: Session = context.obj
    made = session.library.store.corrections()
    if json_:
        session.answer_json(as_json(answers.CORRECTIONS, {"corrections": made}))
        return
    session.say(*map(terminal.correction, made))
    if not made:
        session.remark("no stored price was corrected")
