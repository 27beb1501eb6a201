"""Waits on a machine until an object store works again: what a program has made is worth more than
some minutes.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from spotctl.agent.data.stores import StoreUnavailable
from spotctl.agent.errors import AgentError

PATIENCE_SECONDS = 480.0
"""How long a store may fail."""

_PAUSE_SECONDS = 5.0
"""Between attempts; an attempt itself repeats its requests for a quarter of a minute."""

_LOOK_SECONDS = 0.1

T = TypeVar("T")


def is_temporary(error: BaseException | None) -> bool:
    """Whether the cause of an error is a store that may soon work again."""
    while error is not None and not isinstance(error, StoreUnavailable):
        error = error.__cause__
    return error is not None


def patiently(
    act: Callable[[], T],
    say: Callable[[str], object],
    is_leaving: Callable[[], bool] = lambda: False,
) -> T:
    """Carries out an action, again and again while the store is unavailable; says so once.

    A machine that `is_leaving` has no time to wait for a store.
    """
    give_up, is_said = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        try:
            return act()
        except AgentError as error:
            if not is_temporary(error) or time.monotonic() >= give_up or is_leaving():
                raise
            if not is_said:
                say(f"{error}; trying again")
                is_said = True
        again_at = time.monotonic() + _PAUSE_SECONDS
        while time.monotonic() < again_at and not is_leaving():
            time.sleep(_LOOK_SECONDS)
