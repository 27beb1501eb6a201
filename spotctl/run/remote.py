"""Runs a user's command on a machine of a job, for `spotctl exec` and `spotctl ssh`."""

import signal
import subprocess
from collections.abc import Sequence
from contextlib import closing

from pricing_data.units import format_time
from spotctl.clouds.errors import NotFound
from spotctl.clouds.provider import CloudProvider
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.home.callbacks import unheard
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog

CANNOT_START = 127
"""The status by which shells report that a command does not exist."""


def target_of(job: str, node: str, settings: Settings) -> tuple[str, CloudProvider]:
    """The machine of a job that `node` names, an id, or its position among the running ones from 0
    (the default); and the provider that can run a command on it."""
    paths = Paths(settings.home)
    if not paths.log.exists():
        raise BadRequest(f"no job named {job!r} was launched (start one with: spotctl launch FILE)")

    with closing(EventLog(paths.log)) as log:
        state = latest_run(log, job)
    if state is None or state.began is None:
        raise BadRequest(f"no job named {job!r} was launched ('spotctl status' lists all jobs)")

    if state.ended is not None:
        raise BadRequest(
            f"run {state.run} of job {job} has ended ({state.ended.outcome}); it has no machines"
        )

    provider = provider_of(settings, restored(state.began.spec, paths.home))
    machine = node or "0"
    running = [held.id for held in state.alive]
    if not running:
        raise BadRequest(f"job {job} has no machine at the moment (see 'spotctl status {job}')")

    if machine not in running:
        held = state.machines.get(machine)
        if held is not None and held.ended is not None:
            raise BadRequest(
                f"machine {machine} of job {job} has been gone since {format_time(held.ended)}: "
                f"{held.end_reason}"
            )
        if not machine.isdecimal() or int(machine) >= len(running):
            raise BadRequest(
                f"job {job} has no machine {machine!r}: --node takes 0 to {len(running) - 1}, in "
                f"the order of 'spotctl status --json', or an id such as {running[0]}"
            )
        machine = running[int(machine)]

    return machine, provider


def run(
    machine: str, provider: CloudProvider, command: Sequence[str], *, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs a command on a machine with this process's streams, or captures its output over the
    machine's link. The status is as shells report it: a command that a signal ended has 128 plus
    the number of the signal.

    ProviderError: the machine is not reached, or no longer.
    """
    if capture:
        ended = provider.link(machine).exec(command)
        out, err = (captured.decode(errors="replace") for captured in (ended.out, ended.err))
        status = 128 - ended.exit_code if ended.exit_code < 0 else ended.exit_code
        return subprocess.CompletedProcess(command, status, out, err)

    invocation = provider.invocation(machine, command)
    try:
        process = subprocess.Popen(
            invocation.words, env=invocation.environment, cwd=invocation.folder
        )
    except OSError as error:
        failure = f"{command[0]}: {error.strerror or error}"
        return subprocess.CompletedProcess(command, CANNOT_START, "", failure)

    # Interrupts are the command's.
    before = signal.signal(signal.SIGINT, unheard)
    try:
        # A machine that ends kills its processes, but may have looked for them just before this
        # command started.
        try:
            provider.invocation(machine, command)
        except NotFound:
            process.kill()
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)

    code = process.returncode
    if (why := invocation.lost(code)) is not None:
        raise why
    return subprocess.CompletedProcess(command, 128 - code if code < 0 else code, "", "")
