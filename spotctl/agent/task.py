"""The task of a node of a command job, passed as one JSON argument without any secret."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from spotctl.agent.container import Container
from spotctl.agent.errors import BrokenProtocol

OTHER_NODE = "node-{rank}"
"""The folder of a node's own files within a folder that all nodes share."""


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Where a program's checkpoints are stored, and how often the program writes one. Times are seconds.

    `every` None: derived from evictions, which come after `life` on average (None: never), and at least every
    `longest`. `cost` is the assumed cost of a checkpoint until one is measured. If the number of nodes changes, parts
    from every node would not fit the next start: the first node's checkpoint counts for all (`of_first`).
    """

    path: str
    every: float | None
    life: float | None
    cost: float
    longest: float
    of_first: bool = False


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A node's task. `data` and `outputs` map environment variables of the program to locations, and `near` those of
    data that may have a copy near the machine to the copy's location.

    `name` distinguishes this start of the program from others on the same machine; `cache` is the folder for data, and
    `marks` the place where the node notes that its program has ended with status 0 (empty: nowhere). In a `container`,
    the setup runs before each start of the program, because its changes last no longer than the container.
    """

    name: str
    rank: int = 0
    run: str = ""
    setup: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    cache: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    checkpoint: CheckpointPolicy | None = None
    marks: str = ""
    container: Container | None = None
    near: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The command-line argument."""
        # Agents of earlier versions do not know `near`.
        return json.dumps({name: value for name, value in asdict(self).items() if value or name != "near"})

    @classmethod
    def from_json(cls, text: str) -> "NodeTask":
        """The inverse of `to_json`. BrokenProtocol: the text is not a task."""
        try:
            values = json.loads(text)
            checkpoint, container = values.pop("checkpoint"), values.pop("container", None)
            return cls(
                **values,
                checkpoint=None if checkpoint is None else CheckpointPolicy(**checkpoint),
                container=None if container is None else Container.from_json(json.dumps(container)),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenProtocol(f"{text[:60]!r} is not a task: {error}") from error
