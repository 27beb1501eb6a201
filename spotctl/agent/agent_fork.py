"""Forks a machine's agent from the process that supervises the machine; only that process ends the machine."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from spotctl.agent.command import dies_with
from spotctl.agent.machine import MachineAgent


def fork_agent(agent: Callable[[], MachineAgent], unwanted: Sequence[int]) -> int:
    """Starts the agent and returns its process id once it serves, or has died. The agent never outlives this process.

    `unwanted` are descriptors that the agent must not inherit.
    """
    ready, parent = os.pipe(), os.getpid()
    pid = os.fork()
    if pid == 0:
        _run(agent, parent, ready[1], (*unwanted, ready[0]))
    os.close(ready[1])
    os.read(ready[0], 1)
    os.close(ready[0])
    return pid


def _run(agent: Callable[[], MachineAgent], parent: int, ready: int, unwanted: Sequence[int]) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for descriptor in unwanted:
            os.close(descriptor)
        die_with_parent = dies_with(parent)
        if die_with_parent is not None:
            die_with_parent()
        status = agent().run(ready=lambda: os.close(ready))
    except BaseException:  # noqa: BLE001 - a fork must not continue in its parent's code, whatever happens
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
