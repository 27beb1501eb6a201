"""`Payload`: the command that a machine's agent runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotctl.agent.errors import BrokenProtocol


@dataclass(frozen=True, slots=True)
class Payload:
    """A command and its settings. The `name` distinguishes its result from an earlier payload's.

    The agent runs the command in `folder` (empty: a folder of the machine's own) and in a process group of its own, and
    adds `SPOTCTL_MACHINE` (the agent's folder), `SPOTCTL_MACHINE_ID`, `SPOTCTL_INDEX` (the machine's number within its
    request, from 0) and `SPOTCTL_LEASE` (the folder of `spotctl.agent.lease`) to the `environment`. With
    `term_at_notice`, an eviction notice also sends SIGTERM. When the machine is terminated or its lease ends, the
    command gets SIGTERM and `grace_seconds` to exit; when the machine is evicted, it gets no time. A payload is stored
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
            raise BrokenProtocol(f"{str(values)[:60]} is not a payload: {type(error).__name__} {error}") from None
