"""The folder in which a run's processes find each other, and what a training that ended early
leaves for the next run.

The folder is outside of the home: sockets need short paths, and the secret by which processes
authenticate each other is not kept next to the log. A restart of the computer may remove it, so the
controller's state and the checkpoints are kept in a blob store under the home. The next run starts
with a copy, and reports all machines of earlier runs as lost: its own nodes then restore the newest
checkpoint, as after any loss of all nodes.
"""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agileml.runtime.blob_store import (
    BlobStore,
    FileBlobStore,
    UnreadableBlob,
    fetch_file,
    file_pieces,
)
from agileml.runtime.folders import NotPrivate, require_private
from agileml.runtime.rendezvous import FolderRendezvous
from spotctl.agent.files import replace_json
from spotctl.files.job.programs import Training
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest
from spotctl.home.installation import read_or_create

_KEPT = "kept"
"""The blob that is written last: the training, the machines and the last clock, and the folder of
the other blobs."""

_EARLIER = "earlier.json"
"""The copy of that blob in a rendezvous folder."""

_LONGEST_BASE = 40
"""Bytes of the temporary folder's path that leave room for the names of sockets."""

_SECRET_BYTES = 32
_SECRET_FILE = "secret"  # noqa: S105 - the name of the file, in a folder only its owner can read

_CONTROLLER, _CHECKPOINTS = "controller.jsonl", "checkpoints/"


def keep(spec: JobSpec, machines: Iterable[str], clock: int, rendezvous: Path, kept: Path) -> None:
    """Replaces the kept state by that of a run; a run without a checkpoint replaces nothing."""
    source = FolderRendezvous(rendezvous, b"").blobs
    store = FileBlobStore(kept)
    if not source.list(_CHECKPOINTS) or not (rendezvous / _CONTROLLER).is_file():
        return

    folder, (earlier_machines, earlier_clock) = f"{rendezvous.name}/", earlier(rendezvous)
    _copy(source, _CHECKPOINTS, store, folder + _CHECKPOINTS)
    store.put(folder + _CONTROLLER, file_pieces(rendezvous / _CONTROLLER))
    names = sorted({*machines, *earlier_machines})
    content = {
        "training": _identity(spec),
        "machines": names,
        "clock": max(clock, earlier_clock),
        "folder": folder,
    }

    store.put(_KEPT, [json.dumps(content).encode()])
    for name in store.list():
        if name != _KEPT and not name.startswith(folder):
            store.delete(name)


def restore(spec: JobSpec, rendezvous: Path, kept: Path) -> None:
    """Copies the kept state to a run that has not started, if the state belongs to the same
    training.
    """
    require_private(kept)
    store = FileBlobStore(kept)
    if _KEPT not in store.list(_KEPT):
        return

    content = json.loads(b"".join(store.get(_KEPT)))
    if content["training"] != _identity(spec):
        return

    folder = content["folder"]
    _copy(store, folder + _CHECKPOINTS, FolderRendezvous(rendezvous, b"").blobs, _CHECKPOINTS)
    fetch_file(store, folder + _CONTROLLER, rendezvous / _CONTROLLER)

    # The list of machines comes last: without it, the next attempt copies everything again.
    replace_json(rendezvous / _EARLIER, content, lasting=True)


def forget(kept: Path) -> None:
    """Removes the kept state: the training is done, or starts from scratch."""
    try:
        shutil.rmtree(kept)
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadRequest(f"cannot remove {error.filename}: {error.strerror}") from error


def earlier(rendezvous: Path) -> tuple[tuple[str, ...], int]:
    """The machines of the earlier runs that the run in this folder resumes from, which are all
    gone, and their last clock."""
    try:
        content: dict[str, Any] = json.loads((rendezvous / _EARLIER).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return (), 0
    return tuple(content["machines"]), int(content["clock"])


def _copy(source: BlobStore, prefix: str, target: BlobStore, new_prefix: str) -> None:
    """Copies blobs; damaged ones are left out, since an older checkpoint may be whole."""
    for name in source.list(prefix):
        with suppress(UnreadableBlob):
            target.put(new_prefix + name.removeprefix(prefix), source.get(name))


def _identity(spec: JobSpec) -> dict[str, Any]:
    """The properties by which two trainings are the same. The stopping criterion may differ: a new
    one is a reason to resume."""
    assert isinstance(spec.program, Training)
    return {"app": spec.program.app, "args": dict(spec.program.args), "workdir": str(spec.workdir)}


def new_rendezvous() -> Path:
    """A path for a run's folder. The log records it before it is created, so that no folder is left
    unrecorded.
    """
    base = tempfile.gettempdir()
    # Only the owner can read the folder.
    short = base if len(os.fsencode(base)) <= _LONGEST_BASE else "/tmp"  # noqa: S108
    return Path(short) / f"spotctl-{secrets.token_hex(4)}"


def make_rendezvous(folder: Path) -> None:
    """Creates the folder, readable by its owner only, and the secret."""
    folder.mkdir(mode=0o700, exist_ok=True)
    check_rendezvous(folder)
    read_or_create(folder / _SECRET_FILE, secrets.token_bytes(_SECRET_BYTES))


def check_rendezvous(folder: Path) -> None:
    """Raises BadRequest if another user may have written what is in the folder.

    Its name is in the log, and after a restart of the computer anybody can create a folder of that
    name.
    """
    try:
        require_private(folder)
    except NotPrivate as error:
        raise BadRequest(
            f"{error}; 'spotctl stop' closes its run, 'spotctl launch' starts it again"
        ) from error


def secret_of(folder: Path) -> bytes:
    """The secret; empty if the folder is gone or another user's: a run that only returns its
    machines needs none.
    """
    path = folder / _SECRET_FILE
    try:
        require_private(folder)
        return path.read_bytes()
    except (FileNotFoundError, NotPrivate):
        return b""
