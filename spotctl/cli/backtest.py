"""`spotctl backtest`: replays strategies over recorded markets."""

from __future__ import annotations

import typer

from spotctl.cli.backtest_compare import compare
from spotctl.cli.backtest_deadline import deadline
from spotctl.cli.backtest_frontier import frontier
from spotctl.cli.backtest_regions import regions
from spotctl.cli.backtest_run import run

app = typer.Typer(help="Replay strategies over recorded markets.", no_args_is_help=True)
app.command()(run)
app.command()(compare)
app.command()(deadline)
app.command()(frontier)
app.command()(regions)
