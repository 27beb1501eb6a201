"""`spotctl backtest`: strategies replayed over the past."""

from __future__ import annotations

import typer

from spotctl.cli.backtest_run import run

app = typer.Typer(help="Strategies replayed over a recorded past.", no_args_is_help=True)
app.command()(run)


@app.callback()
def _group() -> None:
    """Keeps the commands of this group commands, also while there is only one."""
