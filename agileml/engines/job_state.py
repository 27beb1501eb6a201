"""A folder with the state of a job, so that a job whose command was killed continues when it is run again."""

import shutil
from contextlib import closing
from dataclasses import fields
from pathlib import Path

from agileml.engines.local.fleet import CONTROLLER_MEMORY
from agileml.errors import BadInput
from agileml.roles.node import JobSettings
from agileml.runtime.attach import PublishedJob, published_in
from agileml.runtime.controller_process import Memory
from agileml.runtime.folders import NotPrivate
from agileml.runtime.prepared_job import RunnableJob
from agileml.transport import BadAddress
from agileml.transport.addresses import UnixAddress

_LONGEST_NAME = "controller.sock"
_OWN = ("lock", "node.job", "checkpoints")
"""Files in the folder before the job begins, apart from sockets and logs."""


def is_unfinished(folder: Path) -> bool:
    """Whether a job in this folder has begun and not ended."""
    return (folder / CONTROLLER_MEMORY).is_file()


def nodes_so_far(folder: Path) -> tuple[str, ...]:
    """The names of all nodes that have joined a job in this folder."""
    if not is_unfinished(folder):
        return ()
    with closing(Memory(folder / CONTROLLER_MEMORY)) as memory:
        return tuple(memory.instances)


def prepare(folder: Path, plan: RunnableJob) -> None:
    """Creates the folder, or checks that what is in it belongs to this training. Raises BadInput if it does not."""
    try:
        UnixAddress(str(folder / _LONGEST_NAME))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        strangers = not is_unfinished(folder) and any(folder.iterdir())
    except BadAddress:
        raise BadInput(
            f"state folder {folder}: its path is too long for the sockets in it; choose a shorter one"
        ) from None
    except OSError as error:
        raise BadInput(f"state folder {folder}: {error.strerror or error}; name another folder") from None
    if strangers and not all(
        path.name in _OWN or path.suffix in (".sock", ".log", ".out") for path in folder.iterdir()
    ):
        raise BadInput(f"state folder {folder} contains files that are not a job's state; name another folder")
    if is_unfinished(folder) and (changed := _difference(_read_published(folder), plan)):
        raise BadInput(
            f"state folder {folder} holds a training with {changed};"
            " name another folder for a new training, or delete this one"
        )


def forget(folder: Path) -> None:
    """Removes the state of a job that has ended."""
    shutil.rmtree(folder, ignore_errors=True)


def _read_published(folder: Path) -> PublishedJob | None:
    try:
        return published_in(folder)
    except NotPrivate:
        raise
    except Exception as error:  # noqa: BLE001 - what unpickling raises depends on what has changed
        raise BadInput(
            f"state folder {folder} holds a training of another version of spotctl ({error});"
            " install that version, or name another folder"
        ) from None


def _difference(before: PublishedJob | None, plan: RunnableJob) -> str:
    """The differences that keep one job from continuing with the other's model; empty if they are the same."""
    if before is None:
        return ""
    source, job = before.role.job.source, before.role.job
    if Path(source.target).name != Path(plan.job.source.target).name:
        return f"another trainer, {source.target}"
    if dict(source.arguments) != dict(plan.job.source.arguments):
        return f"other arguments of the trainer, {dict(source.arguments)}"
    for setting in fields(JobSettings):
        old = getattr(job.settings, setting.name)
        if old != getattr(plan.job.settings, setting.name):
            return f"{setting.name.replace('_', ' ')} {old}"
    if before.files != plan.job.source.files():
        return "other code of the trainer"
    return "" if before.role.work == plan.node_role(before.role.rendezvous).work else "other shards"
