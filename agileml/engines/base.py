"""What an engine is: something that runs a training job."""

from __future__ import annotations

from typing import Protocol

from agileml.engines.chaos import Chaos
from agileml.job import Job, Listener, Trained


class Engine(Protocol):
    """Runs jobs on nodes of one kind."""

    def run(self, job: Job, chaos: Chaos, listener: Listener) -> Trained:
        """Trains until the job's stopping criterion holds; raises an AgileMLError if it cannot."""
        ...
