"""Joining a job whose machines somebody else starts: the job publishes the role of a node, and each node reads it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

from agileml.errors import Refused
from agileml.runtime.mailbox import Rendezvous
from agileml.runtime.node_process import NodeProcess
from agileml.runtime.role_specs import NodeRole

ROLE_FILE = "node.role"


def publish(role: NodeRole) -> None:
    """Makes the role readable for the nodes that will join."""
    path = role.rendezvous.folder / ROLE_FILE
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(role))
    part.replace(path)


def join(folder: Path, secret: bytes, name: str, *, reliable: bool) -> bool:
    """Runs a node of the job until it is told to leave; False if the job did not admit it."""
    path = folder / ROLE_FILE
    try:
        role: NodeRole = pickle.loads(path.read_bytes())  # noqa: S301 - written by the job itself, in its own folder
    except OSError as error:
        raise Refused(f"{folder} holds no job to join: {error.strerror}") from error
    rendezvous = Rendezvous(folder, secret)
    return NodeProcess(replace(role, name=name, reliable=reliable, rendezvous=rendezvous)).run()
