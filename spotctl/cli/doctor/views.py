"""Findings on the terminal and as JSON."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spotctl.clouds.findings import Finding, Level, exit_code

_MARKS = {
    Level.GOOD: ("good", "green"),
    Level.NOTE: ("note", "cyan"),
    Level.FAILS: ("FAILS", "red"),
    Level.NO_ACCESS: ("FAILS", "red"),
}


def to_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The answer of `doctor --json`."""
    return {
        "exit_code": exit_code(findings),  #: exit code of the command
        "findings": [  #: the checks
            {
                "about": finding.about,  #: what it belongs to: here, runs, prices, data, or a cloud
                "what": finding.what,  #: what was checked
                "level": finding.level.value,  #: `good`, `note`, `fails`, or `no access` (to a cloud)
                "told": finding.detail,  #: what was found
                "cure": finding.cure or None,  #: how to fix it; null if there is nothing to fix
            }
            for finding in findings
        ],
    }


def report(findings: Sequence[Finding]) -> Group:
    """The findings by group, each followed by its cure."""
    parts: list[RenderableType] = []
    for about, group in groupby(findings, key=lambda finding: finding.about):
        table = Table.grid(padding=(0, 2, 0, 0))
        for finding in group:
            word, style = _MARKS[finding.level]
            table.add_row(Text(f"  {word}", style=style), Text(f"{finding.what}: {finding.detail}"))
            if finding.cure:
                table.add_row("", Text(f"-> {finding.cure}"))
        parts += [Text(about, style="bold"), table]
    return Group(*parts)
