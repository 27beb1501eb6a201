"""The settings that `spotctl.integrations.gang` passes to the ranks of a gang in their environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agileml.errors import BadInput
from spotctl.agent.interval import CHECKPOINT_VARIABLE

_PEERS, _MACHINE, _FOLDER = "SPOTCTL_GANG_PEERS", "SPOTCTL_GANG_MACHINE", "SPOTCTL_GANG_FOLDER"
SECRET_VARIABLE = "GANG_SECRET"  # noqa: S105 - the name of a variable
"""Belongs under `secrets:` in the job file, so that spotctl passes the secret on and never stores it."""


@dataclass(frozen=True, slots=True)
class GangSettings:
    """The addresses of all machines' stores, the number of this machine, and its folder for saves.

    `checkpoints` is the folder that spotctl copies to the job's checkpoint place; None if there is none.
    """

    peers: tuple[str, ...]
    machine: int
    folder: Path
    secret: bytes = field(repr=False)
    checkpoints: Path | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "GangSettings":
        """The settings in an environment. BadInput: `python -m spotctl.integrations.gang` did not start the process."""
        if _PEERS not in environment:
            raise BadInput("start the script with python -m spotctl.integrations.gang SCRIPT (in place of torchrun)")
        checkpoints = environment.get(CHECKPOINT_VARIABLE)
        return cls(
            tuple(environment[_PEERS].split(",")),
            int(environment[_MACHINE]),
            Path(environment[_FOLDER]),
            secret_of(environment),
            Path(checkpoints) if checkpoints else None,
        )

    def variables(self) -> dict[str, str]:
        """The inverse of `of`, in addition to the environment with the secret."""
        return {_PEERS: ",".join(self.peers), _MACHINE: str(self.machine), _FOLDER: str(self.folder)}


def secret_of(environment: Mapping[str, str]) -> bytes:
    """The gang's secret. BadInput: its variable is not set."""
    if not (secret := environment.get(SECRET_VARIABLE)):
        raise BadInput(
            f"${SECRET_VARIABLE} is not set: export {SECRET_VARIABLE}=$(openssl rand -hex 32), and name it under"
            " secrets: in the job file"
        )
    return secret.encode()
