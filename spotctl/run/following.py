"""How others follow a run, and stop it: each turn, each alarm once, each wait that takes some
seconds, and SIGINT, SIGTERM and SIGHUP while it goes on.

A wait is said as for what, until when, and what it costs meanwhile; a line is never repeated, and
nothing here changes a run.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread, current_thread, main_thread
from typing import TypeVar

from pricing_data.units import MINUTE, SECOND, bid_usd, counted, moment
from spotctl.clouds.link import LeaseTimes
from spotctl.files.job.spec import JobSpec
from spotctl.home.callbacks import never, unheard
from spotctl.home.wall_clock import wall_us
from spotctl.log.budget import hourly
from spotctl.log.events import FINISH, Alarm, RunEnded
from spotctl.log.state import RunState
from spotctl.run.turn.ending import REMOVAL_PATIENCE, STORE_PATIENCE
from spotctl.run.turn.service import Runner

SAY_AFTER, SAY_AGAIN = 3.0, 30.0
"""Seconds of a wait until it is said, and until something new about it is said again."""

_LOOK_SECONDS = 0.25

LONGEST_LEASE = LeaseTimes().committed
"""After this time without a runner, all machines of a run are gone."""

REACH_SECONDS = 55.0
"""A command that ends a run has returned every machine that it can reach after this time (after a
minute with its own start), and has said when the leases of the others end, however silent clouds
and object stores are."""

UNPRICED = (
    "machines there cost their price meanwhile, and shut themselves down when nothing has renewed "
    f"their leases for {LONGEST_LEASE // MINUTE} minutes"
)
"""The cost of a wait whose machines are not known."""

T = TypeVar("T")


@contextmanager
def waits_said(awaited: str | Callable[[], str], say: Callable[[str], object]) -> Iterator[None]:
    """While the block lasts, says what it waits for, as `awaited` words it; that is empty while
    nothing is waited for.

    Another thread says it, because this one is waiting. A line is not repeated.
    """
    over = Event()

    def watch() -> None:
        since = None
        due = 0.0
        said = ""
        while not over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            text = awaited if isinstance(awaited, str) else awaited()
            since = None if not text else now if since is None else since
            if since is not None and text != said and now >= max(since + SAY_AFTER, due):
                said = text
                due = now + SAY_AGAIN
                say(text)

    watcher = Thread(target=watch, name="waits", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def in_time(
    calls: Mapping[str, Callable[[], T]],
    seconds: float,
    what: str,
    cost: str,
    say: Callable[[str], object],
) -> dict[str, T]:
    """The answers of calls, each by its name, that are made at the same time: those that come
    within `seconds`.

    Says which are still waited for: for `what`, and what that costs. The first error of a call is
    raised.
    """
    answers = dict[str, T]()
    errors = list[BaseException]()

    def make(name: str, call: Callable[[], T]) -> None:
        try:
            answers[name] = call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the answers are awaited
            errors.append(error)

    until = wall_us() + round(seconds * SECOND)
    threads = {
        name: Thread(target=partial(make, name, call), daemon=True) for name, call in calls.items()
    }

    def awaited() -> str:
        names = ", ".join(name for name, thread in threads.items() if thread.is_alive())
        return names and f"waiting until {moment(until)} at the latest for {names} {what}; {cost}"

    for thread in threads.values():
        thread.start()
    with waits_said(awaited, say):
        for thread in threads.values():
            thread.join(max((until - wall_us()) / SECOND, 0.0))

    if errors:
        raise errors[0]
    return answers


def end_awaited(state: RunState, reason: str = "") -> str:
    """The line about a run that is to end; empty for any other run. `reason` says what it waits for
    once all machines are gone, and before that, why the wait lasts."""
    if state.stopping is None or state.ended is not None:
        return ""

    machines = state.alive
    orders = state.open_orders
    clock = " of the market's clock" if state.is_replayed else ""

    if not machines and not orders:
        until = moment(state.at + STORE_PATIENCE + REMOVAL_PATIENCE)
        what = reason or (
            f"its results to be stored and what is left of it in the cloud to be removed, tried "
            f"until {until}{clock}"
        )
        return f"waiting for {what}; its machines are gone and cost nothing any more"

    parts: Sequence[str] = [
        f"{counted(len(machines), 'machine')} to be gone" if machines else "",
        "the machines of an order without an answer to appear" if orders else "",
    ]
    leases = [*(held.lease_until for held in machines), *(order.lease_until for order in orders)]

    return (
        f"waiting for {' and '.join(filter(None, parts))}, until their leases are over at"
        f" {moment(max(leases) + LeaseTimes().teardown)}{clock} at the latest; they cost at most"
        f" {bid_usd(hourly(state))} an hour meanwhile{f' ({reason})' if reason else ''}"
    )


WAIT_SECONDS = 15.0
"""How often a run says what its machines wait for before they work: the progress of what is sent to
them."""

RunEnd = tuple[RunState, RunEnded]
"""The last state of a run, and its last event."""


@dataclass(frozen=True, slots=True)
class RunObserver:
    """Callbacks: `on_turn` gets the state after each turn of the loop, `on_end` the end of the run.

    `on_alarm` is called once for each thing that the user may want to change: a budget that is not
    expected to last, or a login that has expired. `on_remark` gets the name of a job, and a line
    about it that is not in the log. `is_stopped` says whether the user has asked to stop
    everything.
    """

    on_turn: Callable[[RunState], None] = unheard
    on_end: Callable[[JobSpec, RunState, RunEnded], None] = unheard
    on_alarm: Callable[[JobSpec, RunState, Alarm], None] = unheard
    on_remark: Callable[[str, str], None] = unheard
    is_stopped: Callable[[], bool] = never


def turn_reports(spec: JobSpec, runner: Runner, observer: RunObserver) -> Callable[[], None]:
    """Reports each turn; each alarm once, unless an earlier process reported it; and what machines
    wait for until they work, now and then, if there is something new to say."""
    reported = {runner.state.over_budget.get(FINISH), runner.state.login}
    due: float | None = None
    said = ""

    def report() -> None:
        nonlocal due, said
        state = runner.state
        observer.on_turn(state)
        starting = runner.starting
        now = time.monotonic()

        if not starting:
            due = None
        elif due is None:
            due = now + WAIT_SECONDS
        elif now >= due and starting != said:
            due = now + WAIT_SECONDS
            said = starting
            observer.on_remark(spec.name, starting)

        for alarm in (state.over_budget.get(FINISH), state.login):
            if alarm is not None and alarm not in reported:
                reported.add(alarm)
                observer.on_alarm(spec, state, alarm)

    return report


_NOTICE_SECONDS = 0.1


@contextmanager
def stop_signals(stopped: Event) -> Iterator[None]:
    """The first signal sets `stopped`, so that the run can stop; a second one ends this process.

    A terminal that is closed sends SIGHUP, perhaps more than once: it never ends the process that
    returns machines. A process that was started to ignore it, such as by nohup, goes on ignoring
    it.

    Only the main thread receives signals; elsewhere this does nothing.
    """
    if current_thread() is not main_thread():
        yield
        return

    def received(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            # What is printed from now on goes nowhere: writing to a terminal that is closed fails.
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                # A closed terminal is none any more, but still a device.
                if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                    os.dup2(nowhere, descriptor)
            os.close(nowhere)
        elif stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, received) for number in numbers}

    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def noticing(stopped: Event, noticed: Callable[[], None]) -> Iterator[None]:
    """Calls `noticed` once `stopped` is set: in another thread, since this one may be waiting for a
    cloud.
    """
    over = Event()

    def watch() -> None:
        while not over.wait(_NOTICE_SECONDS):
            if stopped.is_set():
                noticed()
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
