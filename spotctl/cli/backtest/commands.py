"""`spotctl lab backtest`: replays strategies over recorded markets."""

import typer

from spotctl.cli.backtest.compare import compare
from spotctl.cli.backtest.deadline import deadline
from spotctl.cli.backtest.frontier import frontier
from spotctl.cli.backtest.regions import regions
from spotctl.cli.backtest.run import run

app = typer.Typer(help="Replay strategies over recorded markets.", no_args_is_help=True)
app.command()(run)
app.command()(compare)
app.command()(deadline)
app.command()(frontier)
app.command()(regions)
