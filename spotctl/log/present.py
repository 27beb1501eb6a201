"""The present of a run: until when it is charged, and whether a process attends to it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.store import is_running

if TYPE_CHECKING:
    from spotctl.home.config import Settings
    from spotctl.log.state import RunState


@dataclass(frozen=True, slots=True)
class Present:
    """A moment of the provider's clock, and whether a process attends to the run then.

    Without a process, the leases of its machines are not renewed, and they end by themselves.
    """

    now: int
    attended: bool


def present_of(state: RunState, settings: Settings, elsewhere: Collection[str] = ()) -> Present:
    """The present of a run; to those `elsewhere`, a runner on another computer attends. A run that has ended stays at
    its end."""
    if state.began is None or state.ended is not None:
        return Present(state.at, attended=False)
    attended = state.run in elsewhere or is_running(Paths(settings.home).locks, state.began.job)
    return Present(max(_now(state, settings), state.at), attended)


def _now(state: RunState, settings: Settings) -> int:
    if not state.is_replayed:
        return wall_us()
    from spotctl.clouds.base import now_of
    from spotctl.clouds.wiring import provider_of
    from spotctl.files.job.reader import restored

    assert state.began is not None
    return now_of(provider_of(settings, restored(state.began.spec, settings.home)), state.at)


def status_word(state: RunState, *, attended: bool) -> str:
    """The outcome of a run that has ended; else interrupted, stopping or running."""
    if state.ended is not None:
        return state.ended.outcome
    if not attended:
        return "interrupted"
    return "running" if state.stopping is None else "stopping"
