"""More about an update than every job reports: for the process that has started the pipeline, with the iteration."""

from dataclasses import dataclass

import msgspec

from agileml.core.events import Iteration
from agileml.pipeline.elastic.controller import EpochRecord


@dataclass(frozen=True)
class UpdateDetails:
    """Losses of microbatches, also of updates that were done again, and the epochs that have begun to train."""

    losses: dict[int, float]
    epochs: tuple[EpochRecord, ...]

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def details_of(iteration: Iteration) -> UpdateDetails:
    return msgspec.json.decode(iteration.details, type=UpdateDetails)
