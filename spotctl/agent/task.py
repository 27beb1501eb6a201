"""What a node of a command job does, as its launcher tells it: one argument of JSON, without any secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from spotctl.agent.errors import BrokenProtocol

OTHER_NODE = "node-{rank}"
"""Where nodes keep what is theirs, in a folder that all share."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where a program's checkpoint outlives its machine, and how often it is to write one, in seconds.

    `every` None: by evictions, which come after `life` seconds on average (None: never), at most every `longest`; one
    is taken to cost `cost` until that was measured.
    """

    path: str
    every: float | None
    life: float | None
    cost: float
    longest: float


@dataclass(frozen=True, slots=True)
class Task:
    """A node's work. `data` and `outputs` are places by the variable that names them to the program.

    `name` tells this start of the program from others on the same machine; `cache` is the folder in which data is kept.
    """

    name: str
    rank: int = 0
    run: str = ""
    setup: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    cache: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    keeping: Keeping | None = None

    def to_json(self) -> str:
        """As the argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """From the argument."""
        try:
            values = json.loads(text)
            keeping = values.pop("keeping")
            return cls(**values, keeping=None if keeping is None else Keeping(**keeping))
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenProtocol(f"{text[:60]!r} is no task: {error}") from error
