"""Callers killed by SIGKILL around each call of an order, on a real cluster: another one that repeats
the order buys nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import closing
from typing import Any

import pytest

from spotctl.clouds.errors import Unanswered
from spotctl.clouds.provider import Machine
from tests.servers.slurm_cluster import needs_slurm
from tests.spotctl.clouds.slurm.world import World, order
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm]

BEFORE, AFTER = "before", "after"
CALLS = range(4)
"""The configuration, the list of partitions, the submission of the jobs, and the first look at them."""


def killed_at(made: World, token: str, call: int, kind: str) -> int:
    """How a caller ends that is killed before or after one of its calls to the cluster."""
    pid = os.fork()
    if pid == 0:
        usual, made_calls = subprocess.run, iter(range(1000))

        def fateful(*words: Any, **named: Any) -> Any:  # noqa: ANN401 - as the call has them
            is_last = next(made_calls) == call
            if is_last and kind == BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)
            done = usual(*words, **named)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        try:
            subprocess.run = fateful
            made.provider().create(order(token, machines=2))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def repeated(made: World, token: str) -> tuple[Machine, ...]:
    """The machines of an order that is repeated as a run does."""
    give_up = time.monotonic() + 120
    while True:
        with closing(made.provider()) as provider:
            try:
                return provider.create(order(token, machines=2))
            except Unanswered:
                assert time.monotonic() < give_up, "it never succeeded"
                time.sleep(0.5)


@pytest.mark.parametrize("kind", [BEFORE, AFTER])
@pytest.mark.parametrize("call", CALLS)
def test_what_a_killed_caller_ordered_is_bought_once(made: World, call: int, kind: str) -> None:
    token = f"killed-{call}-{kind}"
    assert killed_at(made, token, call, kind) == -signal.SIGKILL
    machines = repeated(made, token)
    assert len({machine.id for machine in machines}) == 2
    names = made.cluster.alive()
    assert len(names) == len(set(names)) == 2
    assert sum(name in names for name in made.cluster.ever()) == 2
    with closing(made.provider()) as provider:
        provider.terminate([machine.id for machine in machines])
    eventually(lambda: not made.cluster.alive())
