"""Value types that billing, strategies, backtests and live planning share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time in microseconds without work: start-up of new machines, and pauses of the whole job.

    `eviction` is the papers' lambda (pause after an eviction), `resize` their sigma (pause after a join or a return).
    """

    startup: int
    eviction: int
    resize: int
