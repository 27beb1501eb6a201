"""Joining a job whose machines are started by its caller: the job publishes the role of a node, each node reads it."""

from __future__ import annotations

import pickle
from dataclasses import replace

from agileml.errors import PeerRefused
from agileml.runtime.blob_store import BlobStore, UnreadableBlob
from agileml.runtime.heartbeat import beating
from agileml.runtime.node_process import NodeProcess
from agileml.runtime.output import captured
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.role_specs import NodeRole

_ROLE_BLOB = "node.role"


def publish(role: NodeRole, blobs: BlobStore) -> None:
    """Makes the role readable for the nodes that will join. It must not contain the secret."""
    blobs.put(_ROLE_BLOB, [pickle.dumps(role)])


def published(blobs: BlobStore) -> NodeRole | None:
    """The role of the job's nodes; None before the job has published one."""
    try:
        content = b"".join(blobs.get(_ROLE_BLOB))
    except UnreadableBlob:
        return None
    role: NodeRole = pickle.loads(content)  # noqa: S301 - written by the job itself, in its own store
    return role


def join(rendezvous: Rendezvous, name: str, *, reliable: bool) -> bool:
    """Runs a node of the job until it is told to leave; False if the job did not admit it.

    Raises PeerRefused if there is no job to join, or if the controller refuses this process.
    """
    role = published(rendezvous.blobs)
    if role is None:
        raise PeerRefused("no job to join: it has not published the role of its nodes, or its folder is gone")
    role = replace(role, name=name, reliable=reliable, rendezvous=rendezvous)
    with captured() as capture, beating(role, capture) as vitals:
        return NodeProcess(role, vitals).run()
