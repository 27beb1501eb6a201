"""`SlurmCalls`: every call to a Slurm cluster, by its own commands, and what a refusal means.

Columns are asked for by name, because JSON differs between versions of Slurm and `scontrol` of
22.05 has none; moments as seconds since 1970. Seen with 22.05.8; the messages are those of
slurm_errno.c (https://github.com/SchedMD/slurm, read on 2026-12-01).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    NoAnswer,
)
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    QuotaReached,
    Refusal,
    Scope,
    Throttled,
    error_of_call,
    in_contract,
)
from spotctl.clouds.slurm.cloud import ACCOUNT
from spotctl.home.errors import BadRequest

CALL_SECONDS = 20.0
"""Slurm's commands give up by themselves, after about ten seconds."""

MIN_VERSION = (20, 11)
"""The first one with `squeue --me` and `sbatch --export=NIL`."""

_WIDTH, _COMMENT = 200, 600
_SILENT = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection refused|not responding"
    r"|Zero Bytes were transmitted|Transport endpoint|Communication connection failure",
    re.IGNORECASE,
)
_ABSENT = re.compile(r"Could not establish a configuration source", re.IGNORECASE)
_CREDENTIAL = re.compile(r"munge|Invalid authentication credential|auth plugin", re.IGNORECASE)

_GONE = re.compile(r"Invalid job id|already completing", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)_(\d+)")

ClusterRow = Mapping[str, str]
"""One line of an answer: the columns by their names."""


def answer_of(what: str, *words: str, given: str = "") -> str:
    """The output of one of Slurm's commands. Raises `CloudError`."""
    variables = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words,
            input=given,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CALL_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise MissingCredentials(
            f"slurm: {words[0]} is not installed here", ACCOUNT.setup
        ) from None
    except subprocess.TimeoutExpired:
        silent = f"slurm: {what}: no answer within {CALL_SECONDS:.0f} s"
        raise NoAnswer(silent, "is the controller up? Try: scontrol ping") from None

    if done.returncode == 0:
        return done.stdout

    lines = [line.partition("error: ")[2] or line for line in done.stderr.splitlines()]
    said = "; ".join(dict.fromkeys(filter(None, lines)))[:300].rstrip(".")
    problem = f"slurm: {what}: {said or f'{words[0]} exited with status {done.returncode}'}"
    if _SILENT.search(said):
        raise NoAnswer(problem, "is the controller up? Try: scontrol ping")
    if _CREDENTIAL.search(said):
        raise AccessDenied(problem, "is munge running here, with the key of the cluster?")
    if _ABSENT.search(said):
        raise MissingCredentials("slurm: this computer knows no cluster", ACCOUNT.setup)
    raise CloudError(problem, code=said[:80])


def table_of(what: str, words: Sequence[str], columns: Sequence[str]) -> list[ClusterRow]:
    """The lines that `squeue` or `sinfo` prints, with these columns. Raises `CloudError`."""
    widths = {column: _COMMENT if column == "Comment" else _WIDTH for column in columns}
    form = ",".join(f"{column}:{width}|" for column, width in widths.items())
    lines = answer_of(what, *words, "--noheader", f"--Format={form}").splitlines()
    parts = ([cell.strip() for cell in line.split("|")][:-1] for line in lines)
    # A name or a comment with a bar in it is not one of ours.
    return [dict(zip(columns, cells, strict=True)) for cells in parts if len(cells) == len(columns)]


_PARTITION = "name others in partitions of the [slurm] settings (sinfo lists them)"
_ACCOUNT = "set account and qos in [slurm] (sacctmgr show associations user=$USER)"
_LIMIT = "wait for jobs of yours to end, or ask the cluster's administrators"
_TYPE = "spotctl prices fetch --cloud slurm, and types of the job file that sinfo -Nel still shows"
_ERRNO = "https://github.com/SchedMD/slurm/blob/slurm-22.05/src/common/slurm_errno.c"
_REASONS = "https://slurm.schedmd.com/squeue.html#SECTION_JOB-REASON-CODES"

REFUSALS = (
    Refusal("", NotHere, Scope.ZONE, _PARTITION, _ERRNO, r"invalid partition|partition .*inactive"),
    Refusal("", NotHere, Scope.ZONE, _PARTITION, _REASONS, r"Partition(Down|Inactive|Config)"),
    Refusal("", NotHere, Scope.ZONE, _PARTITION, _ERRNO, r"not permitted|Access/permission denied"),
    Refusal("", NotPermitted, Scope.ACCOUNT, _ACCOUNT, _ERRNO, r"invalid ?(account|qos|wckey)"),
    Refusal("", QuotaReached, Scope.ACCOUNT, _LIMIT, _ERRNO, r"violates accounting"),
    Refusal("", QuotaReached, Scope.ACCOUNT, _LIMIT, _REASONS, r"(Assoc|QOS)\w*(Max|Grp|Limit)"),
    Refusal("", BadRequest, Scope.ACCOUNT, "lower hours in [slurm]", _ERRNO, r"time ?limit"),
    Refusal("", NotFound, Scope.TYPE, _TYPE, _ERRNO, r"generic resource|feature|configuration is"),
    Refusal("", NotFound, Scope.TYPE, _TYPE, _REASONS, r"BadConstraints|PartitionNodeLimit"),
    Refusal("", NoCapacity, Scope.MOMENT, "", _ERRNO, r"down, drained or reserved|not available"),
    Refusal("", Throttled, Scope.MOMENT, "", _ERRNO, r"temporarily un|job limit|try again"),
)
"""Messages of `sbatch`, and reasons why a job waits that do not pass."""

of_call = partial(error_of_call, REFUSALS)
"""The error of the provider contract for a call that was refused."""


def cancel(*numbers: int | str) -> None:
    """Ends jobs, or withdraws them, by one call, which asks the controller once for each array.
    Those that the cluster does not know are gone."""
    arrays: dict[str, list[str]] = {}
    known = list[str]()
    for number in map(str, numbers):
        if match := _NUMBER.fullmatch(number):
            arrays.setdefault(match[1], []).append(match[2])
        else:
            known.append(number)
    known += [f"{array}_[{','.join(tasks)}]" for array, tasks in arrays.items()]
    with in_contract(of_call):
        try:
            if known:
                answer_of("end of jobs", "scancel", *known)
        except CloudError as error:
            if not _GONE.search(error.problem):
                raise


def configuration() -> ClusterRow:
    """The settings of the cluster, by their names. Raises `CloudError`, for a version that is too
    old as well."""
    lines = answer_of("configuration", "scontrol", "show", "config").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    known = {name.strip(): value.strip() for name, _, value in pairs}
    version = known.get("SLURM_VERSION", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < MIN_VERSION:
        least = ".".join(map(str, MIN_VERSION))
        problem = f"slurm: the cluster runs version {version or 'unknown'}"
        raise CloudError(problem, f"spotctl needs {least} or later")
    return known
