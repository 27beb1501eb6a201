"""Joining a job whose machines are started by its caller: the job publishes what a node needs, each node reads it.

A node runs the trainer's code that it is sent, so it must trust the job: both have proven before that they know its
secret.
"""

import pickle
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import Any

from agileml.errors import PeerRefused
from agileml.params.layout import Layout
from agileml.runtime.blob_store import BlobStore, FileBlobStore, UnreadableBlob
from agileml.runtime.folders import require_private
from agileml.runtime.heartbeat import beating
from agileml.runtime.output import captured
from agileml.runtime.remote_blobs import LinkedBlobStore
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous, listening_host
from agileml.runtime.role_specs import NodeRole, NodeRun
from agileml.transport import TcpAddress, new_instance

_JOB_BLOB = "node.job"


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """The role of a node, without name and secret, and the files of the trainer's code by their relative paths."""

    role: NodeRole
    files: dict[str, bytes] = field(repr=False)


def publish(role: NodeRole, blobs: BlobStore) -> None:
    """Makes the trainer's code and the role, which must not contain the secret, readable for nodes that will join."""
    blobs.put(_JOB_BLOB, [pickle.dumps(PublishedJob(role, role.job.source.files()))])


def published_in(folder: Path) -> PublishedJob | None:
    """Reads what the job of a folder has published; None before it has. Raises NotPrivate if others can write there."""
    require_private(folder)
    return _read_published(FileBlobStore(folder))


def _read_published(blobs: BlobStore) -> PublishedJob | None:
    try:
        content = b"".join(blobs.get(_JOB_BLOB))
    except UnreadableBlob:
        return None
    # From this user's own folder, or over a link that has proven the secret.
    job: PublishedJob = _JobReader(BytesIO(content)).load()
    role = job.role
    if not isinstance(role.work, str):
        return job

    # An earlier version has published the role with other fields behind the job, which pickle tells by their place: the
    # instance, the work, and the layout of the model or the number of its layers.
    known: dict[str, Any] = {name: getattr(role, name) for name in ("name", "reliable", "rendezvous", "job")}
    known |= {"instance": role.work, "work": role.partitions}
    model: Any = role.instance
    if isinstance(model, Layout):
        known |= {"layout": model, "partitions": len(model)}
    else:
        known["partitions"] = model
    return replace(job, role=type(role)(**known))


class _JobReader(pickle.Unpickler):
    """Reads also what an earlier version has published, in a folder with the state of a job."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as pickle has it
        """Finds classes that have moved to other modules since."""
        return super().find_class(_MOVED.get(module, module), name)


_MOVED = {
    "agileml.stopping": "agileml.job",
    "agileml.work.plan": "agileml.work",
    "agileml.pipeline.run.fleet_node": "agileml.pipeline.run.fleet_job",
    "agileml.pipeline.run.model_source": "agileml.pipeline.run.fleet_job",
    "agileml.pipeline.model.optimizers": "agileml.pipeline.optimizers",
    "agileml.pipeline.model.torch_optimizers": "agileml.pipeline.optimizers",
}


def folder_role(rendezvous: FolderRendezvous, name: str, *, reliable: bool) -> NodeRole:
    """The role of a node on the computer of its job, with the trainer's code where the job has it.

    Raises PeerRefused if there is no job to join, NotPrivate if other users can write to its folder.
    """
    job = published_in(rendezvous.folder)
    if job is None:
        raise PeerRefused("no job to join: it has not published the role of its nodes, or its folder is gone")
    return replace(job.role, name=name, reliable=reliable, rendezvous=rendezvous, instance=new_instance())


def linked_role(
    rendezvous: LinkedRendezvous,
    name: str,
    *,
    reliable: bool,
    port: int,
    host: str | None = None,
    listen: TcpAddress | None = None,
) -> NodeRole:
    """The role of a node anywhere, with a copy of the trainer's code in its own folder.

    `host` and `port` are where other nodes reach it; if left out, the address from which it reaches the controller.
    It listens at `listen`, or there.

    Raises PeerRefused if the controller refuses this process for good, ControllerUnreachable if it is not reached.
    """
    with closing(LinkedBlobStore(rendezvous)) as blobs:
        job = _read_published(blobs)
    if job is None:
        raise PeerRefused(f"the controller at {rendezvous.controller} has no job to join")
    theirs = job.role.rendezvous
    assert isinstance(theirs, FolderRendezvous)
    assert theirs.listen is not None
    reached = TcpAddress(host or listening_host(rendezvous.controller, theirs.listen), port)
    return replace(
        job.role,
        name=name,
        reliable=reliable,
        rendezvous=replace(
            rendezvous,
            listen=listen or reached,
            reached=reached if listen else None,
            frame_bytes=job.role.job.settings.frame_bytes,
        ),
        job=replace(job.role.job, source=job.role.job.source.unpack(job.files, rendezvous.folder / "code")),
        instance=new_instance(),
    )


def join(role: NodeRole, started: Callable[[NodeRun], None] = lambda _: None, folder: Path | None = None) -> bool:
    """Runs a node until the job tells it to leave; False if the job did not admit it.

    What it prints goes through a temporary file, in `folder` if given.

    Raises PeerRefused if the controller refuses this process for good, DeclaredLost if it considers the node lost,
    ControllerUnreachable if there has been no controller for too long.
    """
    with captured(folder) as (output, echo), beating(role, output, echo) as vitals:
        node = role.process(vitals)
        started(node)
        return node.run()


@cache
def code_version() -> str:
    """For example `0.1.0-1a2b3c4d`: the release, and a digest of the package's files. Messages have no versions of
    their own. Nodes may run different Pythons, except with a copied trainer (`agileml.user_code`)."""
    try:
        release = version("spotctl")
    except PackageNotFoundError:
        release = "unknown"
    root = Path(__file__).parents[1]
    digest = sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{release}-{digest.hexdigest()[:8]}"
