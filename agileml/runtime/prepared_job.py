"""The roles of a job's processes, and the result for its caller."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from agileml.job import GaveUp, Trained, TrainingJob
from agileml.runtime.blob_store import BlobStore
from agileml.runtime.job_shape import JobShape
from agileml.runtime.node_process import TrainerRole
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Result, counted, model_of
from agileml.runtime.role_specs import ControllerRole, NodeRole, TrainerControllerRole


@dataclass(frozen=True, slots=True)
class RunnableJob(ABC):
    """A job with all that a fleet needs to start its processes."""

    job: TrainingJob

    @property
    def least_nodes(self) -> int:
        """The model does not fit on fewer nodes."""
        return 1

    @property
    def nodes_are_alike(self) -> bool:
        """Whether no node has to outlive the others, so that each may run on a machine of any kind."""
        return False

    @abstractmethod
    def controller_role(self, rendezvous: Rendezvous, memory: Path) -> ControllerRole:
        """The controller's role; `memory` is the file from which a restarted controller resumes."""

    @abstractmethod
    def node_role(self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False) -> NodeRole:
        """A node's role."""

    @abstractmethod
    def trained(self, result: Result, blobs: BlobStore | None = None) -> Trained:
        """The result of the whole job. GaveUp: the job ended early, because nodes failed again and again."""


@dataclass(frozen=True, slots=True)
class PreparedJob(RunnableJob):
    """A training with workers and servers, and its shape."""

    shape: JobShape

    def controller_role(self, rendezvous: Rendezvous, memory: Path) -> ControllerRole:
        shape = self.shape
        return TrainerControllerRole(
            rendezvous=rendezvous,
            memory=memory,
            code=shape.code,
            job=self.job,
            plan=shape.plan,
            partition_bytes=shape.layout.partition_bytes(),
        )

    def node_role(self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False) -> NodeRole:
        plan, layout = self.shape.plan, self.shape.layout
        return TrainerRole(name=name, reliable=reliable, rendezvous=rendezvous, plan=plan, layout=layout, job=self.job)

    def trained(self, result: Result, blobs: BlobStore | None = None) -> Trained:  # noqa: ARG002 - the controller has sent the model
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
