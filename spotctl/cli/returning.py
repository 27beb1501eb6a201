"""`spotctl stop` (earlier `down`) and `gc`: machines are returned."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pricing_data.units import SECOND, moment
from spotctl.cli.boundary import CREDENTIALS, FAILED
from spotctl.cli.options import OptionalJobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest, SpotctlError, UnreadableJob
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.outcomes import WITHDRAWN

_MIN_SECONDS = 10.0
"""However long a command has waited before, clouds get this time to return machines."""

if TYPE_CHECKING:
    from spotctl.log.events import RunEnded
    from spotctl.log.state import RunState
    from spotctl.run.orphans import EmergencyReturn, Orphans
    from spotctl.run.stored_data.removing import DataUse


def stop(
    context: typer.Context,
    job: OptionalJobArgument = "",
    all_: Annotated[bool, typer.Option("--all", help="Stop all jobs.")] = False,
    json_: JsonOption = False,
) -> None:
    """Stop a run and return its machines, even if the launcher is gone. A job that waits for its
    turn is withdrawn.

    A name may be a glob, such as 'search-lr-*'. With it and with --all, --json prints a list.

    Example: spotctl stop nightly-recsys
    """
    session: Session = context.obj
    if bool(job) == all_:
        raise BadRequest(f"spotctl {context.info_name}: name one job, or give --all")
    if all_ or "*" in job:
        _end_all(session, job or "*", json_=json_)
        return

    from spotctl.cli.runs.live_runs import finish, finish_withdrawn
    from spotctl.log.jobs import remove_waiting
    from spotctl.log.outcomes import BrokenLog, LogFailed
    from spotctl.run.remote_runner.place import RunnerLost

    if remove_waiting(Paths(session.settings.home), job):
        finish_withdrawn(session, job, json_=json_)
    asked = wall_us()
    try:
        state, ended = _stop_run(session, job)
    except (BrokenLog, LogFailed, UnreadableJob, RunnerLost) as error:
        _emergency(session, error, asked, job, json_=json_)

    if not json_ and ended.wall_us < asked:
        when = moment(ended.wall_us)
        session.remark(f"{state.run} ended at {when} ({ended.outcome}); nothing is left to stop")
        return

    if json_ or ended.outcome != "stopped":
        finish(session, (state, ended), json_=json_)
    session.remark(f"{state.run}: {ended.outcome}; all machines returned")


def gc(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    clouds: Annotated[
        list[str] | None,
        typer.Option(
            "--cloud",
            help="Search only this cloud (default: every cloud that jobs were launched on).",
        ),
    ] = None,
    data_days: Annotated[
        int,
        typer.Option(
            min=1, help="Also remove stored data that no job has used for this many days."
        ),
    ] = 30,
    json_: JsonOption = False,
) -> None:
    """Find and remove whatever this installation rented, on any cloud, and no active run owns.

    Data folders that launches have stored in buckets, and copies of data on this computer, are
    removed, too, once no job of this installation has used them for 30 days (--data-days). Data
    that an active run or another installation uses is kept. With --cloud, data is left alone.

    Every cloud is asked, as the log may have lost what was launched. One that neither the log nor
    the settings name may fail to answer: it is named. If another one cannot be searched, or
    something not removed, the exit code is 1, or 5 for credentials or a permission; the other
    clouds are still cleaned up.

    Example: spotctl gc --yes
    """
    from spotctl.agent.data.sets import gigabytes
    from spotctl.cli.progress import waiting
    from spotctl.cli.runs import remote_runner
    from spotctl.clouds.errors import NotHere, NotPermitted
    from spotctl.run.orphans import orphans
    from spotctl.run.stored_data.removing import DataUse, unused_copies, unused_data
    from spotctl.show.columns import as_json
    from spotctl.show.runs import run_answers

    session: Session = context.obj
    remote_runner.refresh(session)
    with waiting(session, "asking the clouds"):
        orphans_by_cloud = orphans(session.settings, session.remark, clouds or ())
    orphaned = [resource for part in orphans_by_cloud for resource in part.resources]
    unsearched = [part for part in orphans_by_cloud if part.failure is not None]
    failures = [
        f"{part.cloud}: not fully searched: {part.failure}" for part in unsearched if part.is_used
    ]
    not_asked = [part.cloud for part in unsearched if not part.is_used]
    not_permitted = any(
        isinstance(part.failure, NotPermitted | NotHere) for part in unsearched if part.is_used
    )
    unused = list[DataUse]()
    copies = list[tuple[Path, int, int]]()

    try:
        if not clouds:
            unused = unused_data(session.settings, data_days)
            copies = unused_copies(session.settings, data_days)
    except SpotctlError as error:
        failures.append(str(error))

    if not json_:
        session.remark(
            *(f"{resource.kind} {resource.id} {resource.detail}" for resource in orphaned),
            *failures,
        )
        session.remark(f"{len(orphaned)} orphaned resources")
        if not_asked:
            unnamed = (
                "which neither the log nor the settings name (spotctl gc --cloud NAME says why)"
            )
            session.remark(f"not searched: {', '.join(not_asked)}, {unnamed}")
        for use in unused:
            size = (
                gigabytes(use.size)
                if not use.may_lack
                else f"a copy of {gigabytes(use.size)}, as far as it was made"
            )
            session.remark(
                f"data {use.location}: {size}, last used by {use.job}, launched {moment(use.used)}"
            )
        for folder, size_bytes, used in copies:
            session.remark(
                f"data {folder}: {gigabytes(size_bytes)} on this computer, last used {moment(used)}"
            )

    remaining = list[str]()
    if (orphaned or unused or copies) and (
        yes or (not json_ and sys.stdin.isatty() and typer.confirm("Remove them?"))
    ):
        remaining = _remove(session, orphans_by_cloud, unused, copies)

    failures += remaining
    if json_:
        data = [(str(use.location), use.size, use.job, use.used) for use in unused]
        data += [(str(folder), size_bytes, "", used) for folder, size_bytes, used in copies]
        answer = {
            "removed": yes,
            "resources": orphaned,
            "data": data,
            "failures": failures,
            "not_asked": not_asked,
        }
        session.answer_json(as_json(run_answers.ORPHANED, answer))
    else:
        session.remark(*remaining)

    if failures:
        raise typer.Exit(CREDENTIALS if not_permitted else FAILED)


def _remove(
    session: Session,
    orphans_by_cloud: Sequence[Orphans],
    unused: Sequence[DataUse],
    copies: Sequence[tuple[Path, int, int]],
) -> list[str]:
    """Removes what was found in each cloud, even if another one fails, and then the data; returns
    the failures.
    """
    from spotctl.agent.data.stores import SILENCE_SECONDS
    from spotctl.run.following import waits_said
    from spotctl.run.orphans import remove_orphans
    from spotctl.run.stored_data.removing import remove_copies, remove_data

    failures = remove_orphans(orphans_by_cloud, session.remark)
    given_up = moment(wall_us() + SILENCE_SECONDS * SECOND)
    stores = ", ".join(dict.fromkeys(use.location.bucket for use in unused)) or "this computer"
    awaited = (
        f"waiting for {stores} to delete unused data; a store that stays silent is given up at "
        f"{given_up}"
    )

    with waits_said(f"{awaited}; data costs its storage meanwhile", session.remark):
        if copies:
            failures += remove_copies(session.settings, copies)
        try:
            if unused:
                failures += remove_data(session.settings, unused)
        except SpotctlError as error:
            failures.append(str(error))

    return failures


def _return_shown(
    session: Session, why: SpotctlError | str, job: str, since: int, *, json_: bool
) -> EmergencyReturn:
    """Returns what the providers show, in what is left of the time since the command began; of a
    job that cannot be read, the run has ended if nothing of it is left.

    A runner that does not answer is on one of these machines, as is its standby. So they rent no
    others.
    """
    from pricing_data.units import bid_usd
    from spotctl.log.budget import hourly
    from spotctl.log.statuses import read_log
    from spotctl.run.following import LONGEST_LEASE, REACH_SECONDS
    from spotctl.run.orphans import job_of, return_shown
    from spotctl.run.remote_runner.place import RunnerLost
    from spotctl.run.start import runs

    settings = session.settings
    going_on = list["RunState"]()
    clouds = list[str]()
    if isinstance(why, RunnerLost):
        going_on = [
            run for run in read_log(settings).latest if run.ended is None and job_of(run.run) == job
        ]
        clouds = [cloud for run in going_on if run.began for cloud in run.began.provider.split("+")]
        # Where the run was launched by another installation, its machines have that one's tags.
        settings = replace(settings, home=Paths(settings.home).elsewhere(job))

    if not json_:
        session.remark(str(why))
    left = REACH_SECONDS - (wall_us() - since) / SECOND
    ended = return_shown(
        settings, session.remark, job, clouds, min(max(left, _MIN_SECONDS), REACH_SECONDS)
    )

    if not json_:
        session.remark(
            *(
                f"returned {machine.id} of run {machine.run}, {machine.market}"
                for machine in ended.returned
            )
        )
        session.remark(
            *(f"still running: {machine.id} of run {machine.run}" for machine in ended.left),
            *ended.failures,
        )
        session.remark(
            "all machines that the providers showed were returned"
            if not ended.left
            else "try again"
        )

    if ended.left or ended.failures or isinstance(why, RunnerLost):
        over = (
            f"by {moment(wall_us() + LONGEST_LEASE)}, when their leases are over, unless a runner "
            "goes on"
        )
        gone = {machine.id for machine in ended.returned}
        unseen = [
            replace(
                state,
                machines={name: held for name, held in state.machines.items() if name not in gone},
            )
            for state in going_on
        ]
        if ended.failures and (
            names := ", ".join(held.id for state in unseen for held in state.alive)
        ):
            usd = bid_usd(sum(map(hourly, unseen)))
            over += f"; of those that the log knows, {names}, an hour costs at most {usd}"
        session.remark(f"machines that a cloud did not show shut themselves down {over}")

    if isinstance(why, RunnerLost):
        session.remark(
            f"'spotctl stop {job}' writes down the end of the run once its object store answers"
        )

    if isinstance(why, UnreadableJob) and not ended.left and not ended.failures:
        runs.end_unread(job, session.settings, why)
    return ended


def _emergency(
    session: Session, why: SpotctlError | str, since: int, job: str = "", *, json_: bool
) -> NoReturn:
    """Returns what the providers show, because the log cannot be used."""
    from spotctl.show.columns import as_json
    from spotctl.show.runs import run_answers

    ended = _return_shown(session, why, job, since, json_=json_)
    if json_:
        session.answer_json(
            as_json(run_answers.EMERGENCY, {"log_damage": str(why), **asdict(ended)})
        )
    raise typer.Exit(1)


def _stop_run(session: Session, job: str) -> tuple[RunState, RunEnded]:
    from spotctl.cli.runs import remote_runner
    from spotctl.cli.runs.live_runs import live_view
    from spotctl.run.remote_runner.start import HOME
    from spotctl.run.start import runs

    if (ending := remote_runner.stop(session, job)) is not None:
        return ending

    # The first Ctrl-C ends nothing: this process may be the one that returns the machines.
    # On the machine of a runner, only a process that holds the claim may end its run.
    may_take_over = session.settings.home != Path(HOME)
    with live_view(session, from_here=True, leaving=Event()) as callbacks:
        return runs.stop(job, session.settings, callbacks, takes_over=may_take_over)


def _end_all(session: Session, glob: str, *, json_: bool) -> None:
    """Stops the jobs that a glob names."""
    from spotctl.log.jobs import remove_waiting, waiting_jobs
    from spotctl.log.ledger.same_work import final_figures, without_run
    from spotctl.log.statuses import read_log, unfinished_runs
    from spotctl.run.remote_runner.place import RunnerLost

    # First, so that none begins when those before it have ended.
    since = wall_us()
    paths = Paths(session.settings.home)
    waiting = fnmatch.filter([job.name for job in waiting_jobs(paths)], glob)
    waits = {job: remove_waiting(paths, job) for job in waiting}
    withdrawn = [job for job, is_removed in waits.items() if is_removed]
    if damage := read_log(session.settings).damage:
        _emergency(session, damage[0], since, json_=json_)
    endings = list[tuple["RunState", "RunEnded"]]()
    unread = list[tuple[str, str]]()
    failure: SpotctlError | None = None

    for job in dict.fromkeys(
        [
            *fnmatch.filter(unfinished_runs(session.settings), glob),
            *(job for job in waits if job not in withdrawn),
        ]
    ):
        since = wall_us()
        try:
            endings.append(_stop_run(session, job))
        except (UnreadableJob, RunnerLost) as error:
            shown = _return_shown(session, error, job, since, json_=json_)
            if shown.left or shown.failures or isinstance(error, RunnerLost):
                failure = failure or error
            else:
                unread.append((job, f"{error}; all machines that the clouds showed were returned"))
        except SpotctlError as error:
            # The machines of the other jobs are returned all the same.
            failure = failure or error

    session.answer(
        json_,
        [
            *(final_figures(*ending) for ending in endings),
            *(without_run(job, "withdrawn", WITHDRAWN) for job in withdrawn),
            *(without_run(job, "stopped", why) for job, why in unread),
        ],
        None,
        *(why for _, why in unread),
        *(f"{job}: {WITHDRAWN}" for job in withdrawn),
        *(f"{state.run}: {ended.outcome}; all machines returned" for state, ended in endings),
    )

    if failure is not None:
        raise failure
