"""`spotctl ui`: all runs, nights and costs in a browser, and the commands that its pages begin."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pricing_data.units import format_time
from spotctl.cli.session import JsonOption, Session
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.show.costs.cost import Report

_AGE_SECONDS = 15.0
"""Answers that take processes, a network, or many rows of the log are kept for this long."""

_Answer = TypeVar("_Answer")


def ui(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of 127.0.0.1; 0 chooses a free one.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show all runs and nights in a browser: money, machines, forecasts, alarms, loss and output;
    stop and resume runs.

    Prints the address of a page on this computer that renews itself; Ctrl-C ends it. The address
    has a token, without which users of this computer can neither read the page nor act. To stop or
    resume a run, type the command that the page names: it then does what that command does. From
    another computer: ssh -L PORT:127.0.0.1:PORT

    Example: spotctl ui --port 8600
    """
    from secrets import token_urlsafe

    from spotctl.cli import nightly
    from spotctl.cli.report import gather_report
    from spotctl.cli.runs import remote_runner
    from spotctl.show.ui.server import BegunCommands, HomePages, PageServer, opened

    session: Session = context.obj

    def costs(job: str, since: str) -> Report:
        return gather_report(session, [job] if job else (), since, "", "job")

    attended = _kept(partial(remote_runner.refresh, session))
    nights = _kept(partial(nightly.known_jobs, session))
    today = _kept(lambda: costs("", format_time(wall_us())[: len("2026-01-15")]))
    begun = BegunCommands(session.settings.home)

    with (
        closing(HomePages(session.settings, attended, nights, costs, today, begun)) as pages,
        PageServer(port, token_urlsafe(16), pages.answer, pages.begin) as server,
    ):
        pages.prepare()
        if json_:
            session.answer_json({"address": server.address})
        else:
            session.say(server.address)
        sys.stdout.flush()  # a program that reads it from a pipe would wait for the end
        with (
            opened(server, session.remark) if open_ else nullcontext(),
            suppress(KeyboardInterrupt),
        ):
            server.serve_forever()


def _kept(find: Callable[[], _Answer]) -> Callable[[], _Answer]:
    """An answer that is kept for a while, and found again once it is too old."""
    known: list[tuple[float, _Answer]] = []

    def answer() -> _Answer:
        if not known or time.monotonic() > known[0][0] + _AGE_SECONDS:
            known[:] = [(time.monotonic(), find())]
        return known[0][1]

    return answer
