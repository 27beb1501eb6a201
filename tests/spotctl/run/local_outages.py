"""Outages of a launch on the local market: python -m tests.spotctl.run.local_outages, for every
position.

From a call of the launcher on, its cloud with the agents of its machines, or the store of its
checkpoints, fails for two minutes of the market's clock, which passes 60 times faster than the
launcher's.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.data.stores import StoreRefused
from spotctl.cli.boundary import DONE, USAGE
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.link import AgentLink
from spotctl.clouds.local.provider import LocalProvider
from spotctl.home.wall_clock import wall_us
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import processes, state_of
from tests.spotctl.run.outages import LASTS, Outage

SPEED = 60
JOB = f"""\
name: small
kind: command
run: |
  touch $SPOTCTL_CHECKPOINT_DIR/seen; sleep 2; echo made > $OUTPUT_RESULT/made
resources: {{clouds: [local], types: [c4.2xlarge]}}
strategy: on-demand
checkpoint: {{path: saved, every: 1m}}
outputs: {{result: out}}
local: {{speed: {SPEED}}}
"""

CLOUD, STORE = "cloud", "store"
_METHODS: dict[str, tuple[tuple[type, str], ...]] = {
    CLOUD: (
        *((LocalProvider, name) for name in ("create", "list", "terminate")),
        *((AgentLink, name) for name in ("assign", "renew", "status", "notices")),
    ),
    STORE: tuple((FileBlobStore, name) for name in ("put", "get", "list", "delete")),
}


class WallOutage(Outage):
    """Lasts as long as two minutes of the market take."""

    def strikes_now(self, name: str) -> bool:
        return self.strikes(name, wall_us() * SPEED)


@contextmanager
def _failing(part: str, outage: WallOutage) -> Iterator[None]:
    error = (
        Unanswered("no route to the cloud")
        if part == CLOUD
        else StoreRefused("the store answers 503")
    )
    with ExitStack() as stack:
        for owner, name in _METHODS[part]:
            stack.enter_context(
                patch.object(owner, name, _struck(getattr(owner, name), name, outage, error))
            )
        yield


def _struck(
    method: Callable[..., Any], name: str, outage: WallOutage, error: Exception
) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the method
        if outage.strikes_now(name):
            raise error
        return method(*arguments, **named)

    return call


def outlived_here(part: str, begin: int = -1) -> WallOutage:
    """A launch through an outage: its job is done, its result is there, and nothing runs; or it was
    refused.
    """
    outage = WallOutage(begin)
    with tempfile.TemporaryDirectory() as name, _failing(part, outage):
        folder = Path(name)
        path = folder / "job.yaml"
        path.write_text(JOB)
        ended = spotctl("launch", path, "--yes", "--json", SPOTCTL_HOME=str(folder / "home"))
        if ended.code == USAGE:
            assert not (folder / "home" / "local" / "machines").exists(), (
                "refused before anything was rented"
            )
            return outage
        assert (ended.code, ended.json["message"]) == (DONE, "the command exited with status 0"), (
            outage,
            ended,
        )
        assert (folder / "out" / "made").read_text() == "made\n"
        assert not state_of(folder / "home").alive
        assert not processes(folder)
    return outage


def main() -> None:
    """Every position: calls that machines repeat while they work are not told apart."""
    for part in (CLOUD, STORE):
        count = outlived_here(part).calls
        met = sum(outlived_here(part, begin).began_at is not None for begin in range(count))
        sys.stdout.write(
            f"{part}: {met} outages of {LASTS / 60e6:.0f} minutes: every job is done, nothing "
            "runs\n"
        )


if __name__ == "__main__":
    main()
