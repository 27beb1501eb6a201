"""Joining a job whose machines are started by its caller: the job publishes what a node needs, each
node reads it.

A node runs the trainer's code that it is sent, so it must trust the job: the controller has proven
that it is the job's. The job does not trust its nodes. What it publishes is data
(`agileml.protocol.plain`), which no node may write (`agileml.runtime.rights`), so that reading it
runs nothing of a node's.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from agileml.errors import BadInput, PeerRefused
from agileml.job import Stopping
from agileml.protocol.plain import read, written
from agileml.runtime.blob_store import BlobStore, FileBlobStore, UnreadableBlob
from agileml.runtime.folders import require_private
from agileml.runtime.heartbeat import beating
from agileml.runtime.output import captured
from agileml.runtime.remote_blobs import LinkedBlobStore
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous, listening_host
from agileml.runtime.role_specs import NodeRole, NodeRun
from agileml.transport import TcpAddress, new_instance

_JOB_BLOB = "node.job"

_PICKLED = b"\x80"
"""The first byte of what earlier versions published."""


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """The role of a node, without name and secret, and the files of the trainer's code by their
    relative paths.
    """

    role: NodeRole
    files: dict[str, bytes] = field(repr=False)


def published(role: NodeRole) -> PublishedJob:
    """The job as its nodes are told: data alone, without what only its controller uses."""
    settings = role.job.settings
    stragglers = settings.stragglers
    if stragglers.wait_policy is not None:
        # A node only needs to know that clocks may end without its work.
        settings = replace(settings, stragglers=replace(stragglers, backup_workers=True))
    job = replace(role.job, settings=settings, stopping=Stopping(clocks=1), stage=None)
    return PublishedJob(replace(role, job=job), role.job.source.files())


def publish(role: NodeRole, blobs: BlobStore) -> None:
    """Makes the trainer's code and the role, which must not contain the secret, readable for nodes
    that will join.
    """
    blobs.put(_JOB_BLOB, [written(published(role))])


def published_in(folder: Path) -> PublishedJob | None:
    """Reads what the job of a folder has published.

    None before it has, and if it was published by an earlier version, as code that is not read any
    more. Raises NotPrivate if others can write there, BadInput if what is there is no job.
    """
    require_private(folder)
    return _read_published(FileBlobStore(folder))


def _read_published(blobs: BlobStore) -> PublishedJob | None:
    try:
        content = b"".join(blobs.get(_JOB_BLOB))
    except UnreadableBlob:
        return None

    if content.startswith(_PICKLED):
        return None

    job = read(content)
    if not isinstance(job, PublishedJob):
        raise BadInput(f"{_JOB_BLOB} holds a {type(job).__name__}, not a job")
    return job


def folder_role(rendezvous: FolderRendezvous, name: str, *, reliable: bool) -> NodeRole:
    """The role of a node on the computer of its job, with the trainer's code where the job has it.

    Raises PeerRefused if there is no job to join, NotPrivate if other users can write to its
    folder.
    """
    job = published_in(rendezvous.folder)
    if job is None:
        raise PeerRefused(
            "no job to join: it has not published the role of its nodes, or its folder is gone"
        )
    return replace(
        job.role, name=name, reliable=reliable, rendezvous=rendezvous, instance=new_instance()
    )


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

    `host` and `port` are where other nodes reach it; if left out, the address from which it reaches
    the controller. It listens at `listen`, or there.

    Raises PeerRefused if the controller refuses this process for good, ControllerUnreachable if it
    is not reached.
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
        job=replace(
            job.role.job, source=job.role.job.source.unpack(job.files, rendezvous.folder / "code")
        ),
        instance=new_instance(),
    )


def join(
    role: NodeRole,
    started: Callable[[NodeRun], None] | None = None,
    folder: Path | None = None,
) -> bool:
    """Runs a node until the job tells it to leave; False if the job did not admit it.

    What it prints goes through a temporary file, in `folder` if given.

    Raises PeerRefused if the controller refuses this process for good, DeclaredLost if it considers
    the node lost, ControllerUnreachable if there has been no controller for too long.
    """
    with captured(folder) as (output, echo), beating(role, output, echo) as vitals:
        node = role.process(vitals)
        if started is not None:
            started(node)
        return node.run()


@cache
def code_version() -> str:
    """For example `0.1.0-1a2b3c4d`: the release, and a digest of the package's files. Messages have
    no versions of their own. Nodes may run different Pythons, except with a copied trainer
    (`agileml.user_code`)."""
    try:
        release = version("spotctl")
    except PackageNotFoundError:
        release = "unknown"

    root = Path(__file__).parents[1]
    digest = sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{release}-{digest.hexdigest()[:8]}"
