"""What a training that was ended early leaves for its job's next run: what its controller knew, and its checkpoints.

It lies under the home, for the folder where a run's processes meet may be gone with the computer's next start. The next
run begins with a copy of it and with the news that all machines of before are lost: then its own go back to the newest
checkpoint, as after any loss of all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spotctl.agent.files import replace_json
from spotctl.errors import BadRequest
from spotctl.files.job.spec import JobSpec, Training
from spotctl.run.workload import Earlier

_MEMORY, _CHECKPOINTS = "controller.jsonl", "checkpoints"
_EARLIER = "earlier.json"
"""Which machines an earlier run had, of what training, and how far it was; beside what it left."""


def keep(spec: JobSpec, machines: Iterable[str], clock: int, meeting: Path, place: Path) -> None:
    """Keeps what lies in a run's meeting folder, in place of what was kept before; without a checkpoint, nothing."""
    if not any(meeting.joinpath(_CHECKPOINTS).glob("*")) or not (meeting / _MEMORY).is_file():
        return
    beside = place.with_name(f".{place.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    shutil.copyfile(meeting / _MEMORY, beside / _MEMORY)
    shutil.copytree(meeting / _CHECKPOINTS, beside / _CHECKPOINTS)
    before = earlier(meeting)
    names = sorted({*machines, *before.machines})
    said = {"training": _identity(spec), "machines": names, "clock": max(clock, before.clock)}
    replace_json(beside / _EARLIER, said, lasting=True)
    forget(place)
    beside.rename(place)


def take_up(spec: JobSpec, meeting: Path, place: Path) -> None:
    """Lets a run that has not begun go on from what was kept, if that is of the same training."""
    known = _read(place / _EARLIER)
    if known is None or known["training"] != _identity(spec):
        return
    # The list of machines comes last: without it the rest is done again.
    shutil.copytree(place / _CHECKPOINTS, meeting / _CHECKPOINTS, dirs_exist_ok=True)
    for name in (_MEMORY, _EARLIER):
        shutil.copyfile(place / name, meeting / name)


def forget(place: Path) -> None:
    """The training is done, or is to begin anew."""
    try:
        shutil.rmtree(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadRequest(f"{error.filename}: cannot be removed: {error.strerror}") from error


def earlier(meeting: Path) -> Earlier:
    """What is known of runs that the one that meets there goes on from."""
    known = _read(meeting / _EARLIER)
    return Earlier() if known is None else Earlier(tuple(known["machines"]), int(known["clock"]))


def _identity(spec: JobSpec) -> dict[str, Any]:
    """What makes two trainings the same. When they stop may change: that is why one is gone on with."""
    assert isinstance(spec.program, Training)
    return {"app": spec.program.app, "args": dict(spec.program.args), "workdir": str(spec.workdir)}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found
