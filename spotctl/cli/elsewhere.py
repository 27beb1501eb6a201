"""Commands about runs whose runner lives on a rented machine: this computer is their client."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, NoReturn

import typer

from spotctl.cli.session import Session

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec
    from spotctl.planning.values import JobPlan
    from spotctl.remote_runner.place import RunPlace

_KEEP_AWAKE = "keep it awake: machines end themselves 15 minutes after it stops"


def moves(specs: Sequence[JobSpec], session: Session) -> bool:
    """Whether the runner moves to a machine; says so if it could be expected and does not. BadRequest: it cannot."""
    from spotctl.remote_runner.place import check_movable, stays_because

    if all(spec.is_local for spec in specs):
        return False
    why = stays_because(specs[0]) if len(specs) == 1 else "jobs that are launched together share it"
    if why:
        session.remark(f"the runner stays on this computer, because {why}; {_KEEP_AWAKE}")
        return False
    check_movable(specs[0], session.settings)
    return True


def refreshed(session: Session, job: str = "") -> set[str]:
    """The runs with a runner elsewhere, of one job or of all, as this home's log knows them from now on."""
    from spotctl.remote_runner import following
    from spotctl.remote_runner.errors import RunnerLost
    from spotctl.remote_runner.place import all_places

    attended = set[str]()
    for place in all_places(session.settings):
        if job in ("", place.job):
            try:
                attended |= following.refreshed(place, session.settings)
            except RunnerLost as error:
                session.remark(str(error))
    return attended


def launch(session: Session, plan: JobPlan, limit: int | None, *, fresh: bool, json_: bool) -> NoReturn:
    """Launches a job whose runner moves to its first reliable machine, and follows it from there."""
    from spotctl.cli.launch import finish, live_view
    from spotctl.remote_runner import moving
    from spotctl.run.live_strategy import expectation

    stopped = Event()
    with live_view(session, leaving=stopped) as view:
        moved = moving.launch(
            moving.Launch(
                plan,
                expectation(plan),
                session.settings,
                view.on_turn,
                stopped.is_set,
                session.remark,
                limit,
                fresh,
            )
        )
    if isinstance(moved, tuple):
        finish(session, *moved, json_=json_)
    session.remark(f"the runner lives on {moved.machine} now: this computer may sleep or leave")
    follow(session, moved.place, json_=json_)


def follow(session: Session, place: RunPlace, *, json_: bool) -> NoReturn:
    """Shows a run until it has ended, and exits with the code of its outcome; Ctrl-C leaves it alone."""
    from spotctl.cli.launch import finish, live_view
    from spotctl.remote_runner.following import Follower

    left = Event()
    with live_view(session, from_here=True, leaving=left) as view:
        ending = Follower(place, session.settings).follow(view.on_turn, left.is_set)
    if ending is None:
        session.remark(f"run {place.run} goes on without this computer; 'spotctl stop {place.job}' stops it")
        raise typer.Exit
    finish(session, *ending, json_=json_)
