"""`spotctl backtest`: strategies replayed over the past."""

from __future__ import annotations

import typer

from spotctl.cli.backtest_compare import compare
from spotctl.cli.backtest_deadline import deadline
from spotctl.cli.backtest_run import run

app = typer.Typer(help="Strategies replayed over a recorded past.", no_args_is_help=True)
app.command()(run)
app.command()(compare)
app.command()(deadline)
