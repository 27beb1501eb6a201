"""Asks whether a script may be tried on this computer, says what it can reach, and shows how the
trial goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from spotctl.files.job.programs import Checkpoint, Command
from spotctl.home.cloud import is_replayed
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.statuses import read_log

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.files.job.spec import JobSpec
    from spotctl.trials.seen_work import Judgement

_SHOWN_PATHS = 8


def may_try(session: Session, name: str, paths: Collection[str], allowed: Collection[str]) -> bool:
    """Says what a trial does and what cannot be kept from it here, and asks. `paths` are those
    outside of the copy.
    """
    from spotctl.trials.sandbox import (
        ALLOWABLE,
        CREDENTIALS,
        MAX_DISK,
        NETWORK,
        NO_NETWORK,
        READ_ONLY,
        guards,
        memory_limit,
    )
    from spotctl.trials.starts import SECONDS

    held = guards(allowed)
    if paths:
        more = f", and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
        session.remark(
            f"{name} names paths outside of its folder: "
            f"{', '.join(sorted(paths)[:_SHOWN_PATHS])}{more}"
        )

    open_ = [
        *(["it can use the network"] if NETWORK not in allowed and NO_NETWORK not in held else []),
        *(["it can write outside of its copy"] if READ_ONLY not in held else []),
        *(
            ["it can read files with credentials"]
            if CREDENTIALS not in allowed and READ_ONLY not in held
            else []
        ),
    ]

    if open_:
        session.remark(f"this computer cannot shut it in: {', and '.join(open_)}")
    without = [what for what in ALLOWABLE if what not in allowed]
    kept = f", without {', '.join(without)}" if without else ""
    session.remark(
        f"A trial runs {name} in a copy of its folder{kept}, kills it twice and starts it again: "
        f"for {SECONDS:.0f} s at"
        f" most, with {memory_limit() >> 30} GiB of memory and {MAX_DISK >> 30} GiB of disk; it "
        "ends if it takes more."
    )

    return typer.confirm("Try it on this computer?", default=False, err=True)


def tried(
    session: Session,
    spec: JobSpec,
    allowed: Collection[str],
    changed: Mapping[str, str] | None = None,
) -> Judgement:
    """The verdict of a trial of a job's command."""
    from spotctl.trials.rehearsal import FailedByItself, rehearse
    from spotctl.trials.seen_work import Judgement, Verdict
    from spotctl.trials.starts import TrialTerms

    assert isinstance(spec.program, Command)
    if spec.program.checkpoint is None:
        spec = replace(spec, program=replace(spec.program, checkpoint=Checkpoint("checkpoints")))
    session.remark(f"trying {spec.name}: it runs until it has saved ...")
    terms = TrialTerms(allowed=tuple(allowed), changed=changed or {}, finds_places=True)

    try:
        _, seen = rehearse(spec, Paths(session.settings.home).cache, terms, session.remark)
    except BadRequest as error:
        verdict = Verdict.FAILED if isinstance(error, FailedByItself) else Verdict.NOT_SEEN
        return Judgement(verdict, str(error))
    return seen


def rehearsed_jobs(session: Session, specs: Sequence[JobSpec], *, asks: bool) -> list[JobSpec]:
    """The jobs with the checkpoints that were seen: of all, or of those that are new on a cloud and
    may be tried.
    """
    from spotctl.run.start.admission import check_launchable
    from spotctl.trials.rehearsal import rehearse
    from spotctl.trials.sandbox import ALLOWABLE
    from spotctl.trials.starts import SECONDS, TrialTerms

    known: list[JobSpec] = []
    for spec in specs:
        if asks and not (
            is_new_on_cloud(session.settings, spec) and may_try(session, spec.name, (), ALLOWABLE)
        ):
            known.append(spec)
            continue
        check_launchable(spec)
        session.remark(f"rehearsing {spec.name} on this computer, for {SECONDS:g} seconds at most")
        cache = Paths(session.settings.home).cache
        rehearsed, seen = rehearse(spec, cache, TrialTerms(), session.remark)
        session.remark(f"{spec.name}: {seen.verdict}: {seen.saw}")
        known.append(rehearsed)

    return known


def is_new_on_cloud(settings: Settings, spec: JobSpec) -> bool:
    """Whether a job that a trial can run here would be launched on a cloud for the first time."""
    program = spec.program
    needs_store = any("://" in place for place in spec.data.values())
    if (
        not isinstance(program, Command)
        or program.checkpoint is None
        or program.parallel is not None
    ):
        return False
    if spec.is_local or spec.on_ray or spec.image.container is not None or needs_store:
        return False

    earlier = (began for began in read_log(settings).began if began.job == spec.name)
    return all(is_replayed(began.provider) for began in earlier)
