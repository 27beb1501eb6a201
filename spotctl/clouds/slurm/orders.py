"""The orders of a Slurm cluster, which are batch jobs, and what `squeue` says of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pricing_data.errors import NoAnswer
from pricing_data.units import NANOS_PER_DOLLAR, SECOND
from spotctl.clouds.errors import in_contract
from spotctl.clouds.order_ledger import Number, OrderLabel
from spotctl.clouds.provider import MachineState
from spotctl.clouds.slurm.calls import ClusterRow, answer_of, of_call, table_of
from spotctl.clouds.slurm.cloud import SlurmSettings
from spotctl.clouds.slurm.partitions import NodeOffer
from spotctl.home.paths import PACKAGE

LONGEST_LABEL = 500
PREFIX = "spotctl-"

COLUMNS = (
    *("ArrayJobID", "ArrayTaskID", "State", "Reason", "StartTime", "EndTime", "PreemptTime"),
    *("NodeList", "Comment"),
)

WAITING = ("PENDING", "CONFIGURING")

STATES: Mapping[str, tuple[MachineState, str]] = {
    "PENDING": (MachineState.STARTING, ""),
    "CONFIGURING": (MachineState.STARTING, ""),
    "RUNNING": (MachineState.RUNNING, ""),
    "COMPLETING": (MachineState.LEAVING, ""),
    "STOPPED": (MachineState.LEAVING, ""),
    "SUSPENDED": (MachineState.PAUSED, ""),
    "PREEMPTED": (MachineState.PAUSED, ""),
    "NODE_FAIL": (MachineState.PAUSED, "its node failed"),
    "BOOT_FAIL": (MachineState.PAUSED, "its node did not boot"),
    "OUT_OF_MEMORY": (MachineState.PAUSED, "it used more memory than its job has"),
    "FAILED": (MachineState.PAUSED, "its job failed: slurm.out in its folder says why"),
    "CANCELLED": (MachineState.PAUSED, "its job was cancelled, and not by spotctl"),
    "TIMEOUT": (MachineState.GONE, ""),
    "DEADLINE": (MachineState.GONE, ""),
    "COMPLETED": (MachineState.GONE, ""),
}
"""The state of a machine, and its failure, by that of its job (squeue(1), "JOB STATE CODES"). One
that is PAUSED without a failure was evicted. A state that is not listed is one on the way to
another."""

ENDED = frozenset(STATES) - {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "STOPPED"}
"""States in which nothing of a job runs."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job of ours, as `squeue` shows it: a task of its order's array, which its number names as
    Slurm does. Moments are in microseconds; `preempted_at` is when its preemption began."""

    number: str
    label: OrderLabel
    state: str
    reason: str = ""
    node: str = ""
    starts: int | None = None
    ends: int | None = None
    preempted_at: int | None = None

    @classmethod
    def of(cls, row: ClusterRow) -> Self | None:
        """The job of a row; None if it is not one of ours."""
        label, task = OrderLabel.parse(row["Comment"]), row["ArrayTaskID"]
        if label is None or not task.isdigit():
            return None
        moments = (
            int(row[name]) * SECOND if row[name].isdigit() else None
            for name in ("StartTime", "EndTime", "PreemptTime")
        )
        what = row["State"], row["Reason"], row["NodeList"]
        own = replace(label, index=int(task))
        return cls(f"{row['ArrayJobID']}_{task}", own, *what, *moments)


def jobs(*which: str) -> dict[Number, BatchJob]:
    """This user's jobs, by one call, with those that ended in the last minutes."""
    words = ("squeue", "--me", "--states=all", "--array", *which)
    with in_contract(of_call):
        rows = table_of("list of jobs", words, COLUMNS)
    return {job.number: job for job in map(BatchJob.of, rows) if job is not None}


def _words(offer: NodeOffer, settings: SlurmSettings) -> Sequence[str]:
    """The options of `sbatch` that say what a job needs."""
    minutes = max(1, round(settings.hours * 60))
    if offer.minutes is not None:
        minutes = min(minutes, offer.minutes)
    given = {
        "partition": offer.market.zone,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": "&".join(offer.features),
        "gres": offer.gpus and ":".join(filter(None, ("gpu", offer.gpu, str(offer.gpus)))),
        "mem": "0" if offer.is_whole else f"{offer.memory_mib}M",
        "cpus-per-task": offer.cpus,
        "time": minutes,
    }
    whole = ("--exclusive",) if offer.is_whole else ()
    options = (f"--{name}={value}" for name, value in given.items() if value)
    return ("sbatch", "--nodes=1", "--ntasks=1", *whole, *options)


def check(offer: NodeOffer, settings: SlurmSettings, said: str) -> str:
    """Has the cluster check an order, and returns what to say of it. Nothing is submitted."""
    with in_contract(of_call):
        answer_of(
            f"order of {offer.market}",
            *_words(offer, settings),
            "--test-only",
            given="#!/bin/sh\n",
        )
    return said


def submit(
    offer: NodeOffer,
    settings: SlurmSettings,
    label: OrderLabel,
    indices: Sequence[int],
    folder: Path,
) -> str:
    """Submits the jobs of an order's machines by one call, as an array, and returns its number.
    Their files are below a folder. Unanswered: they may exist."""
    python, module = shlex.quote(sys.executable), "spotctl.clouds.slurm.job"
    code, place = shlex.quote(str(PACKAGE.parent)), folder / f"{PREFIX}{label.order}-"
    machine = f"{shlex.quote(str(place))}$SLURM_ARRAY_TASK_ID"
    script = f"#!/bin/sh\ncd {code} && exec {python} -s -m {module} {machine}\n"
    own = {
        "array": ",".join(map(str, indices)),
        # Accounting keeps names, and comments only where administrators want them.
        "job-name": f"{PREFIX}{label.order}@{offer.price / NANOS_PER_DOLLAR:.9g}",
        "comment": label.text(LONGEST_LABEL),
        "output": f"{str(place).replace('%', '%%')}%a/slurm.out",
        # A shell gets it a minute before the time limit, and where administrators have set
        # PreemptParameters=send_user_signal, when a preemption begins.
        "signal": "B:TERM@60",
        # No variable of this computer reaches the job, because some are secrets.
        "export": "NIL",
    }
    options = (f"--{name}={value}" for name, value in own.items())
    what = f"order of {offer.market}"
    with in_contract(of_call):
        fixed = ("--parsable", "--no-requeue", *options)
        answer = answer_of(what, *_words(offer, settings), *fixed, given=script)
        number = answer.partition(";")[0].strip()
        if not number.isdigit():
            raise NoAnswer(f"slurm: {what}: an answer without the number of a job: {answer[:100]}")
    return number
