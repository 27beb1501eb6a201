"""Slurm: the jobs that its accounting lists, for the hours that nodes were really held.

    TZ=UTC SLURM_TIME_FORMAT=%FT%TZ sacct --allocations --parsable2 --delimiter=, \\
        --format=JobID,JobName,State,Start,End >jobs.csv

A job's name has the price at which its node was ordered (`orders.submit`). Slurm itself has no
prices.
"""

from __future__ import annotations

import re
from decimal import Decimal

from pricing_data.units import HOUR
from spotctl.clouds.bills import (
    DOLLARS,
    BillLine,
    Cells,
    ExportFormat,
    not_before,
    text_of,
    time_of,
)
from spotctl.clouds.slurm.cloud import CLOUD_NAME

_NAME = re.compile(r"spotctl-[0-9a-f]+@([0-9.]+)")


def lines_of(cells: Cells, where: str) -> list[BillLine]:
    """The time of a job of ours; nothing of others, nor of one that has not started or not
    ended."""
    ours = _NAME.fullmatch(cells["jobname"])
    if ours is None or not all(cells[name][:1].isdigit() for name in ("start", "end")):
        return []
    begin, end = time_of(cells, "start"), time_of(cells, "end")
    hours = Decimal(not_before(begin, end) - begin) / HOUR
    machine, amount = f"{CLOUD_NAME}:{text_of(cells, 'jobid')}", hours * Decimal(ours[1])
    return [BillLine(where, machine, True, begin, end, amount, DOLLARS, cells["state"], None)]


FORMAT = ExportFormat(
    CLOUD_NAME,
    (("jobid",), ("jobname",), ("state",), ("start",), ("end",)),
    lines_of,
    None,
    "jobs of Slurm JobID and JobName",
)
