"""Roles: all that a process of a job is given when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agileml.core.events import ControllerSettings, Iteration, NodeRules
from agileml.job import TrainingJob
from agileml.params.layout import Layout
from agileml.runtime.rendezvous import Rendezvous
from agileml.slowdowns import uneven_share
from agileml.transport import new_instance
from agileml.work.plan import WorkPlan

SLOWEST_BYTES_PER_SECOND = 32 << 20
"""The rate at which a node on a busy computer handles a large model: 32 s for each GiB."""

UNLIMITED = 10**9
"""Clocks of a job that only another criterion stops."""


@dataclass(frozen=True, slots=True)
class NodeRole:
    """A machine of the job."""

    name: str
    reliable: bool
    rendezvous: Rendezvous
    plan: WorkPlan
    layout: Layout
    job: TrainingJob
    instance: str = field(default_factory=new_instance)
    """The node's process and its heartbeat process have this in common, and with no other of the same name."""


@dataclass(frozen=True, slots=True)
class ControllerRole:
    """The job's controller. `memory` is the file from which a restarted controller resumes.

    `code` is the version of the trainer's code when the job began: its file may change while the job runs.
    `needs_all` and `may_lack_nodes`: see `NodeRules`.
    """

    rendezvous: Rendezvous
    memory: Path
    plan: WorkPlan
    partition_bytes: tuple[int, ...]
    code: str
    job: TrainingJob
    needs_all: bool = False
    may_lack_nodes: bool = False


Role = NodeRole | ControllerRole


def controller_settings(
    job: TrainingJob,
    code: str,
    stop: Callable[[Iteration], bool],
    *,
    needs_all: bool = False,
    may_lack_nodes: bool = False,
    model_bytes: int = 0,
) -> ControllerSettings:
    """The controller's settings for a job; `stop` is asked after each clock whether to end.

    A node may look hung while it moves or commits a model of `model_bytes` bytes.
    """
    moving = model_bytes / SLOWEST_BYTES_PER_SECOND
    nodes = NodeRules(
        code,
        job.heartbeat_timeout,
        job.hang_timeout + moving,
        job.startup_timeout + moving,
        needs_all,
        may_lack_nodes,
    )
    return ControllerSettings(
        job.reliable,
        job.transient,
        job.stopping.last_clock or UNLIMITED,
        job.policy,
        nodes,
        job.checkpoint_every,
        stop,
        job.settings.loss_sample,
        job.settings.stragglers,
        uneven_share(job.slowdowns),
    )
