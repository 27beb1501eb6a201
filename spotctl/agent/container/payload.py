"""The work of a machine: a payload, which its agent runs, and the task of a job's node.

Both are plain text, without any secret. A task is passed as JSON in the environment of the
payload's command.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spotctl.agent.container.named_packages import NamedPackages
from spotctl.agent.container.podman import Container
from spotctl.agent.container.processes import BEHIND_SETUP, WITH_SETUP
from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.layout import SETUP_VARIABLE, TASK_VARIABLE

NODE = (
    "import os, sys; from spotctl.agent.node import main;"
    f" sys.exit(main([sys.argv[1], os.environ.pop('{TASK_VARIABLE}'), *sys.argv[2:]]))"
)
"""The code of a node's process, whose task is in `TASK_VARIABLE`: also for machines with modules of
an earlier version, which read only arguments."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A command and its settings. The `name` distinguishes its result from an earlier payload's.

    The agent runs the command in `folder` (empty: a folder of the machine's own) and in a process
    group of its own, and adds `SPOTCTL_MACHINE` (the agent's folder), `SPOTCTL_MACHINE_ID`,
    `SPOTCTL_INDEX` (the machine's number within its request, from 0) and `SPOTCTL_LEASE` (the
    folder of `lease.lease_files`) to the `environment`. With `term_at_notice`, an eviction notice
    also sends SIGTERM. When the machine is terminated or its lease ends, the command gets SIGTERM
    and `grace_seconds` to exit; when the machine is evicted, it gets no time. A payload is stored
    in plain text, so it must not contain a secret.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    term_at_notice: bool = True
    grace_seconds: float = 2.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file or a frame."""
        return {
            "name": self.name,
            "command": list(self.command),
            "environment": dict(self.environment),
            "folder": self.folder,
            "term_at_notice": self.term_at_notice,
            "grace_seconds": self.grace_seconds,
        }

    def in_former_words(self) -> dict[str, Any]:
        """`to_json` as in versions in which tasks and setups were arguments: a request of theirs
        may be repeated.
        """
        values = self.to_json()
        command, variables = values["command"], values["environment"]
        if TASK_VARIABLE in variables and NODE in command:
            at = command.index(NODE)
            action = command[at + 1]
            command[at - 1 : at + 2] = [
                "-m",
                "spotctl.agent.node",
                action,
                variables.pop(TASK_VARIABLE),
            ]

        if SETUP_VARIABLE in variables and BEHIND_SETUP[2] in command:
            at = command.index(BEHIND_SETUP[2])
            command[at : at + 2] = [WITH_SETUP, "setup", variables.pop(SETUP_VARIABLE)]

        return values

    @classmethod
    def from_json(cls, values: Any) -> "Payload":  # noqa: ANN401 - JSON from outside
        """The inverse of `to_json`. BrokenProtocol: the values are not a payload."""
        try:
            return cls(
                str(values["name"]),
                tuple(map(str, values["command"])),
                {str(key): str(value) for key, value in values.get("environment", {}).items()},
                str(values.get("folder", "")),
                bool(values.get("term_at_notice", True)),
                float(values.get("grace_seconds", 2.0)),
            )
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise BrokenProtocol(
                f"{str(values)[:60]} is not a payload: {type(error).__name__} {error}"
            ) from None


OTHER_NODE = "node-{rank}"
"""The folder of a node's own files within a folder that all nodes share."""


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Where a program's checkpoints are stored, and how often the program writes one. Times are
    seconds.

    `every` None: derived from evictions, which come after `life` on average (None: never), and at
    least every `longest`. `cost` is the assumed cost of a checkpoint until one is measured. If the
    number of nodes changes, parts from every node would not fit the next start: the first node's
    checkpoint counts for all (`of_first`). `keep` names places of the job's folder that are kept as
    well.
    """

    path: str
    every: float | None
    life: float | None
    cost: float
    longest: float
    of_first: bool = False
    keep: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A node's task. `data` and `outputs` map environment variables of the program to locations,
    and `near` those of data that may have a copy near the machine to the copy's location.

    `name` distinguishes this start of the program from others on the same machine; `cache` is the
    folder for data, and `marks` the place where the node notes that its program has ended with
    status 0 (empty: nowhere). In a `container`, the setup runs before each start of the program,
    because its changes last no longer than the container. `packages` are those of the program's own
    environment.
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
    packages: NamedPackages | None = None

    def to_json(self) -> str:
        """The text that a node gets."""
        # Agents of earlier versions do not know `near`, `packages` and `keep`.
        later = ("near", "packages")
        values = {name: value for name, value in asdict(self).items() if value or name not in later}
        if self.checkpoint is not None and not self.checkpoint.keep:
            del values["checkpoint"]["keep"]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> "NodeTask":
        """The inverse of `to_json`. BrokenProtocol: the text is not a task."""
        try:
            values = json.loads(text)
            checkpoint, container = values.pop("checkpoint"), values.pop("container", None)
            packages = values.pop("packages", None)
            return cls(
                **values,
                packages=None if packages is None else NamedPackages(**packages),
                checkpoint=None if checkpoint is None else CheckpointPolicy(**checkpoint),
                container=None if container is None else Container.from_json(json.dumps(container)),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenProtocol(f"{text[:60]!r} is not a task: {error}") from error
