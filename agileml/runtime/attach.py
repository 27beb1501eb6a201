"""Joining a job whose machines are started by its caller: the job publishes what a node needs, each
node reads it.

A node runs the trainer's code that it is sent, so it must trust the job: the controller has proven
that it is the job's. The job does not trust its nodes. What it publishes is data, which no node may
write (`agileml.runtime.rights`), so that reading it runs nothing of a node's.

A value is a number, a text, bytes or None, or a list that begins with the name of its kind:
`tuple`, `list`, `map`, `path`, or one of the classes below with its fields. Reading makes no other
object, from whatever bytes; a class checks its fields itself.

What must never happen: a class gets into the list whose making runs code that its fields name.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agileml.errors import BadArgument, BadInput, PeerRefused
from agileml.job import Stopping
from agileml.runtime.blob_store import BlobStore, FileBlobStore, UnreadableBlob
from agileml.runtime.folders import require_private
from agileml.runtime.heartbeat import beating
from agileml.runtime.output import captured
from agileml.runtime.remote_blobs import LinkedBlobStore
from agileml.runtime.rendezvous import FolderRendezvous, LinkedRendezvous, listening_host
from agileml.runtime.role_specs import NodeRole
from agileml.transport import TcpAddress, new_instance

if TYPE_CHECKING:
    from agileml.runtime.node_loop import NodeLoop

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
    started: Callable[["NodeLoop[Any]"], None] | None = None,
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
        is_over: bool = node.run()
        return is_over


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


_PLACES = {
    "agileml.apps.registry": ("TrainerSource",),
    "agileml.job": ("Convergence", "Stopping", "TrainingJob"),
    "agileml.params.layout": ("ArraySpec", "Layout", "Segment"),
    "agileml.pipeline.optimizers": ("Optimizer",),
    "agileml.pipeline.run.fleet_job": ("ModelSource", "PipelineRole"),
    "agileml.policies.flexrr": ("Reassignment",),
    "agileml.policies.stage": ("Thresholds",),
    "agileml.policies.stragglers": ("Stragglers",),
    "agileml.roles.node": ("JobSettings",),
    "agileml.runtime.attach": ("PublishedJob",),
    "agileml.runtime.node_process": ("TrainerRole",),
    "agileml.runtime.rendezvous": ("FolderRendezvous",),
    "agileml.slowdowns": ("Disrupt", "PowerLaw", "Replay", "SlowServer", "SlowWorker", "Uneven"),
    "agileml.transport.addresses": ("TcpAddress",),
    "agileml.work": ("WorkPlan",),
}
_CLASSES = {name: place for place, names in _PLACES.items() for name in names}


def written(value: object) -> bytes:
    """A value as bytes. Raises BadArgument for one that is not made of data."""
    return msgspec.msgpack.encode(_data_of(value))


def read(content: bytes) -> Any:  # noqa: ANN401 - the value that was written
    """The value of these bytes. Raises BadInput if they are no value."""
    try:
        return _value_of(msgspec.msgpack.decode(content))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadInput(f"these are not the bytes of a published job: {error}") from error


def _data_of(value: object) -> object:
    match value:
        case None | bool() | str() | bytes():
            return value
        case int() | float():
            # Also a number of numpy that counts as one of Python.
            return int(value) if isinstance(value, int) else float(value)
        case tuple() | list():
            return [type(value).__name__, *map(_data_of, value)]
        case Mapping():
            return ["map", *([_data_of(key), _data_of(item)] for key, item in value.items())]
        case Path():
            return ["path", str(value)]

    name = type(value).__name__
    if _CLASSES.get(name) != type(value).__module__ or not is_dataclass(value):
        raise BadArgument(
            f"{value!r:.80} cannot be sent to nodes of other computers: use numbers, texts, lists "
            "and maps of them"
        )

    return [
        name,
        *(
            [field.name, _data_of(getattr(value, field.name))]
            for field in fields(value)
            if field.init
        ),
    ]


def _value_of(data: Any) -> Any:  # noqa: ANN401 - whatever was decoded
    if not isinstance(data, list):
        return data

    kind, *rest = data
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](map(_value_of, rest))
    if kind == "path":
        return Path(*rest)

    pairs = {_value_of(name): _value_of(item) for name, item in rest}
    if kind == "map":
        return pairs
    return getattr(importlib.import_module(_CLASSES[kind]), kind)(**pairs)
