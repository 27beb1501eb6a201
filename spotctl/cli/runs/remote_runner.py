"""Commands about runs whose runner lives on a rented machine: this computer is their client."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import typer

from spotctl.home.callbacks import unheard

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.files.job.spec import JobSpec
    from spotctl.log.events import Planned
    from spotctl.log.state import RunState
    from spotctl.planning.values import JobPlan
    from spotctl.run.following import RunEnd
    from spotctl.run.remote_runner.client import RunnerClient
    from spotctl.run.remote_runner.place import RunPlace


_REFRESH_SECONDS = 60.0
_CLAIM_SECONDS, _LOG_SECONDS = 20.0, 30.0
"""How long `stop` waits for what an object store says of a run, from the beginning: a store that
does not even send the claim is silent. The log may be long, and the connection slow."""

_FROM_STORE = "to come from its object store"
"""The awaited state of a run, in words, and the seconds that a command waits for it."""

_KEEP_AWAKE = (
    "keep this computer awake: machines shut themselves down 15 minutes after the runner stops"
)


def moves(specs: Sequence[JobSpec], session: Session) -> bool:
    """Whether the runner moves to a machine; tells the user why if it stays. Raises BadRequest if
    it cannot move.
    """
    from spotctl.run.remote_runner.place import check_movable, stays_because

    if all(spec.is_local for spec in specs):
        return False

    why = "jobs that are launched together share the runner"
    if len(specs) == 1:
        why = stays_because(specs[0])

    if why:
        session.remark(f"the runner stays on this computer, because {why}; {_KEEP_AWAKE}")
        return False

    check_movable(specs[0], session.settings)
    return True


def refresh(session: Session, job: str = "") -> set[str]:
    """Updates this home's log from the runners of one job or of all; returns the runs that a runner
    attends to.
    """
    from spotctl.home.paths import Paths

    # Most homes have no runner elsewhere, and finding that out needs few imports.
    if not Paths(session.settings.home).elsewhere("x").parent.exists():
        return set()

    from spotctl.run.remote_runner.place import all_places

    places = [place for place in all_places(session.settings) if job in ("", place.job)]
    if not places:
        return set()

    from spotctl.run.following import in_time
    from spotctl.run.remote_runner.client import RunnerClient, refresh_run
    from spotctl.run.remote_runner.place import RunnerLost

    def refreshed(place: RunPlace) -> set[str]:
        try:
            return refresh_run(RunnerClient(place, session.settings), session.remark)
        except RunnerLost as error:
            session.remark(str(error))
            return set()

    calls = {f"the state of run {place.run}": partial(refreshed, place) for place in places}
    cost = "its runner goes on meanwhile, and no cost depends on this"
    answers = in_time(calls, _REFRESH_SECONDS, _FROM_STORE, cost, session.remark)
    session.remark(
        *(
            f"{name} did not come within {_REFRESH_SECONDS:.0f} s"
            for name in calls
            if name not in answers
        )
    )

    return set().union(*answers.values())


def client_of(session: Session, job: str) -> RunnerClient | None:
    """The client of a job's active run with a runner elsewhere. Raises RunnerLost if the runner
    cannot be reached.
    """
    from spotctl.run.remote_runner.client import RunnerClient
    from spotctl.run.remote_runner.place import known_place

    place = known_place(job, session.settings)
    if place is None:
        return None
    client = RunnerClient(place, session.settings)
    return None if client.state.ended is not None else client


def pass_on(session: Session, job: str, *words: str, terminal: bool = False) -> None:
    """If the runner of a job lives on a machine, runs a command there and exits with its exit
    code."""
    from spotctl.run.remote_runner.place import RunnerLost

    client = client_of(session, job)
    if client is None:
        return

    try:
        code = client.call(words, terminal=terminal)
    except RunnerLost:
        # What follows a run loses its connection when the run ends, because the runner's machine is
        # returned.
        if words[0] not in ("logs", "top") or client_of(session, job) is not None:
            raise
        code = 0

    raise typer.Exit(code)


def stop(session: Session, job: str) -> RunEnd | None:
    """Stops a run whose runner lives elsewhere; None if the job has no such run. RunnerLost: the
    run's object store is silent, and its machines go on."""
    from spotctl.cli.runs.live_runs import live_view
    from spotctl.run.following import UNPRICED, in_time
    from spotctl.run.remote_runner.client import RunnerClient, stop_run
    from spotctl.run.remote_runner.place import RunnerLost, known_place

    place = known_place(job, session.settings)
    if place is None:
        return None

    client = RunnerClient(place, session.settings)
    calls: dict[str, tuple[Callable[[], object], float]] = {
        f"the claim of run {place.run}": (client.claim, _CLAIM_SECONDS),
        f"the log of run {place.run}": (lambda: client.state, _LOG_SECONDS),
    }
    since = time.monotonic()

    for name, (call, limit) in calls.items():
        seconds = limit - (time.monotonic() - since)
        if name not in in_time({name: call}, seconds, _FROM_STORE, UNPRICED, session.remark):
            raise RunnerLost(f"{name} did not come within {limit:.0f} s")

    if client.state.ended is not None:
        return None
    with live_view(session, from_here=True, leaving=Event()) as view:
        return stop_run(client, view.on_turn, session.remark)


def attached(session: Session, place: str) -> RunPlace:
    """The run at a place, which this computer knows from here on."""
    from spotctl.run.environment import LAUNCHER
    from spotctl.run.remote_runner import place as places

    known = places.attach(place, session.settings, LAUNCHER)
    refresh(session, known.job)
    return known


def launch(
    session: Session,
    plan: JobPlan,
    expected: Planned,
    publish: Callable[[RunState], None],
    *,
    fresh: bool,
) -> RunEnd | None:
    """Launches a job whose runner moves to its first reliable machine, and follows it from
    there."""
    from spotctl.cli.runs.live_runs import live_view
    from spotctl.run.following import RunObserver
    from spotctl.run.remote_runner.handover import launch_and_hand_over

    stopped = Event()
    with live_view(session, leaving=stopped, publish=publish) as view:
        observer = RunObserver(
            view.on_turn, on_remark=lambda _, line: session.remark(line), is_stopped=stopped.is_set
        )
        moved = launch_and_hand_over(plan, expected, session.settings, observer, fresh=fresh)

    if isinstance(moved, tuple):
        return moved

    session.remark(
        f"the runner now lives on {moved.machine}: you may switch this computer off",
        f"from another computer: spotctl resume {moved.place.location}",
    )
    return follow(session, moved.place, publish)


def follow(
    session: Session, place: RunPlace, publish: Callable[[RunState], None] = unheard
) -> RunEnd | None:
    """Shows a run until it has ended; None after Ctrl-C, which leaves the run alone."""
    from spotctl.cli.runs.live_runs import live_view
    from spotctl.run.remote_runner.client import RunnerClient, clear_up

    left = Event()
    client = RunnerClient(place, session.settings)
    with live_view(session, from_here=True, leaving=left, publish=publish) as view:
        ended = client.follow(view.on_turn, left.is_set, session.remark)
    if ended is None:
        session.remark(
            f"run {place.run} continues without this computer; 'spotctl stop {place.job}' stops it"
        )
        return None

    clear_up(client, session.remark)
    return ended
