"""What a training that ended early leaves for the job's next run: the controller's state and the checkpoints.

It is kept under the home, because the rendezvous folder may be lost when the computer restarts. The next run starts
with a copy of it, and reports all machines of earlier runs as lost: its own nodes then restore the newest checkpoint,
as after any loss of all nodes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotctl.agent.files import replace_json
from spotctl.errors import BadRequest
from spotctl.files.job.spec import JobSpec, Training

_CONTROLLER, _CHECKPOINTS = "controller.jsonl", "checkpoints"
_EARLIER = "earlier.json"
"""The training, the machines and the last clock of the runs before."""


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Earlier runs of the same training: their machines, none of which is left, and their last clock."""

    machines: tuple[str, ...] = ()
    clock: int = 0


def keep(spec: JobSpec, machines: Iterable[str], clock: int, rendezvous: Path, kept: Path) -> None:
    """Replaces what was kept by a run's state; without a checkpoint, it keeps what it has."""
    if not any(rendezvous.joinpath(_CHECKPOINTS).glob("*")) or not (rendezvous / _CONTROLLER).is_file():
        return
    partial = kept.with_name(f".{kept.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copyfile(rendezvous / _CONTROLLER, partial / _CONTROLLER)
    shutil.copytree(rendezvous / _CHECKPOINTS, partial / _CHECKPOINTS)
    before = earlier(rendezvous)
    names = sorted({*machines, *before.machines})
    content = {"training": _identity(spec), "machines": names, "clock": max(clock, before.clock)}
    replace_json(partial / _EARLIER, content, lasting=True)
    forget(kept)
    partial.rename(kept)


def restore(spec: JobSpec, rendezvous: Path, kept: Path) -> None:
    """Copies what was kept to a run that has not started, if it belongs to the same training."""
    content = _read(kept / _EARLIER)
    if content is None or content["training"] != _identity(spec):
        return
    # The list of machines comes last: without it, the next attempt copies everything again.
    shutil.copytree(kept / _CHECKPOINTS, rendezvous / _CHECKPOINTS, dirs_exist_ok=True)
    for name in (_CONTROLLER, _EARLIER):
        shutil.copyfile(kept / name, rendezvous / name)


def forget(kept: Path) -> None:
    """Removes what was kept: the training is done, or starts from scratch."""
    try:
        shutil.rmtree(kept)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadRequest(f"cannot remove {error.filename}: {error.strerror}") from error


def earlier(rendezvous: Path) -> EarlierRuns:
    """The earlier runs that the run in this folder resumes from."""
    content = _read(rendezvous / _EARLIER)
    return EarlierRuns() if content is None else EarlierRuns(tuple(content["machines"]), int(content["clock"]))


def _identity(spec: JobSpec) -> dict[str, Any]:
    """What makes two trainings the same. The stopping criterion may differ: that is a reason to resume."""
    assert isinstance(spec.program, Training)
    return {"app": spec.program.app, "args": dict(spec.program.args), "workdir": str(spec.workdir)}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return content
