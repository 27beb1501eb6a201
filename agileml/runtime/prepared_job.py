"""The roles of a job's processes, and the result for its caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agileml.job import GaveUp, Trained, TrainingJob
from agileml.runtime.job_shape import JobShape
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Result, counted, model_of
from agileml.runtime.role_specs import ControllerRole, NodeRole


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job and its shape: what every fleet needs to start the job's processes."""

    job: TrainingJob
    shape: JobShape

    def controller_role(
        self, rendezvous: Rendezvous, memory: Path, *, needs_all: bool = False, may_lack_nodes: bool = False
    ) -> ControllerRole:
        """The controller's role; `memory` is the file from which a restarted controller resumes."""
        shape = self.shape
        sizes = shape.layout.partition_bytes()
        return ControllerRole(rendezvous, memory, shape.plan, sizes, shape.code, self.job, needs_all, may_lack_nodes)

    def node_role(self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False) -> NodeRole:
        """A node's role."""
        return NodeRole(name, reliable, rendezvous, self.shape.plan, self.shape.layout, self.job)

    def trained(self, result: Result) -> Trained:
        """The result of the whole job. GaveUp: the job ended early, because nodes failed again and again."""
        counters = counted(result.tally, result.versions)
        model = model_of(self.shape.layout, result.versions)
        trained = Trained(
            result.clock,
            model,
            counters,
            result.evictions,
            result.failures,
            result.interrupted,
            result.loss,
            self.shape.plan.items_until(result.clock),
        )
        if result.failure:
            raise GaveUp(result.failure, trained)
        return trained
