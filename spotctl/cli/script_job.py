"""`spotctl init` for a script: writes its job file.

It asks what only a person knows, and says which lines to change so that evictions lose no work.
Nothing is written over without --force, and no job file is written that would be refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pricing_data.units import HOUR, MINUTE, counted
from spotctl.cli.task_jobs import TASK_WRITTEN
from spotctl.files.job.conversions import read_span, span_text
from spotctl.files.job.reader import load, loads
from spotctl.files.script.job_text import (
    LOCAL,
    TRUSTING,
    ScriptAnswers,
    bucket_example,
    command_of,
    first_region,
    job_text,
)
from spotctl.files.script.reading import (
    REPLACE,
    Change,
    TrainingScript,
    applied,
    read_script,
)
from spotctl.files.script.trainer_text import trainer_job_text
from spotctl.files.user_files import check_free, editor_line, write_new
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest
from spotctl.show.columns import Column, as_json

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.trials.seen_work import Judgement
    from spotctl.trials.trainer import ComparedTrainer

_SHOWN_FILES = 3
_COPIES = re.compile(r" && (?=cp |\{ )")
_TRIED_SAVES = 2
"""The most kinds of saved files from which a script is told to resume, one after another."""


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A script, the job file to write, and whether to write a trainer, to write over files, to ask
    nothing, and to try the script with what is allowed; and what it is `given` on its command line,
    after its `start`.
    """

    script: Path
    job: Path
    trainer: bool
    force: bool
    silent: bool
    try_: bool = False
    allowed: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    start: str = ""


def write_script_job(session: Session, request: ScriptRequest, *, json_: bool) -> None:
    """Writes the job file of a script, or with `trainer` of a trainer that is made of it, and
    reports on the script.
    """
    # The job runs the script in the folder of the job file, if that contains the script.
    folder = request.job.parent.resolve()
    path = request.script.resolve()
    if not path.is_relative_to(folder):
        folder = Path.cwd() if request.start else path.parent
    script = replace(read_script(request.script, folder), typed=request.given, start=request.start)
    check_free(request.job, force=request.force)
    answers = (
        ScriptAnswers() if request.silent or not session.in_terminal else _asked(request.script)
    )
    trainer = None
    compared = None
    fill_in = tuple[str, ...]()
    seen = None

    if request.trainer:
        trainer, compared = _write_trainer(request, script, answers)
    else:
        script, seen = _tried(session, request, script)
        fill_in = tuple(
            _write_job(request, script, answers, seen, editor_line(session.settings.home))
        )

    has_failed = seen is not None and seen.verdict == "failed"
    no_cost = request.trainer or script.resumes or has_failed
    cost = None if no_cost else _cost(session, request, answers)
    is_unknown = seen is not None and seen.verdict in ("failed", "not seen")
    if json_:
        about = {
            "path": str(script.path),
            "framework": script.framework,
            "resumes": None if is_unknown else script.resumes,
            "tried": None if seen is None else as_json(TRIED, seen),
            "cost": cost,
            # What was not tried is not proposed.
            "changes": () if seen is None else script.changes,
            "fill_in": list(fill_in),
            "assumed": answers.assumed,
        }
        difference = None if compared is None else compared.difference
        files = {"file": str(request.job), "trainer": None if trainer is None else str(trainer)}
        of_task = {"files": None, "tool": None, "left_out": None}
        row = {**files, **of_task, "script": about, "difference": difference}
        session.answer_json(as_json(WRITTEN, row))
        if has_failed:
            raise typer.Exit(1)
        return

    if compared is None:
        _report(session, script, cost, seen)
    else:
        session.say(
            f"{counted(compared.clocks, 'step')} of {script.path} and of its trainer, from the "
            "same weights, with the same batches and without dropout: the weights differ by"
            f" {compared.difference:.1e} of the way that they went"
        )
        session.say(*(f"note: {remark}" for remark in compared.remarks))

    if fill_in:
        session.say(f"Fill in by hand, under run: in {request.job}: {', '.join(fill_in)}")
    names = f"{request.job} and {trainer}" if trainer else str(request.job)
    is_proposed = seen is not None and bool(script.changes)
    ahead = _next(request, answers, is_proposed=is_proposed)
    if has_failed:
        ahead = f"next: correct what failed, then spotctl init {request.script} --try --force"
    session.remark(f"wrote {names}; {ahead}")
    if has_failed:
        raise typer.Exit(1)


def _asked(script: Path) -> ScriptAnswers:
    clouds = (LOCAL, *rented_clouds())

    def cloud_named(text: str) -> str:
        if text.strip().lower() not in clouds:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(clouds)}")
        return text.strip().lower()

    cloud = typer.prompt(
        f"Where will {script} run ({', '.join(clouds)})?", LOCAL, value_proc=cloud_named, err=True
    )
    default = span_text(MINUTE if cloud == LOCAL else HOUR)
    where = "on this computer" if cloud == LOCAL else "on one machine"
    span = typer.prompt(
        f"How long does it take {where} if never interrupted?", default, value_proc=_span, err=True
    )
    bucket = ""

    if cloud != LOCAL:
        bucket = typer.prompt(
            "Which bucket keeps its checkpoints?", bucket_example(cloud), err=True
        )

    return ScriptAnswers(cloud, span, bucket, assumed=False)


def _span(text: str) -> int:
    try:
        return read_span(text.strip())
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}; write 90s, 15m or 10h") from None


def _tried(
    session: Session, request: ScriptRequest, script: TrainingScript
) -> tuple[TrainingScript, Judgement | None]:
    """The script as its job runs it, and the verdict of its trial; None if it is not tried.

    It is tried as it is, then with its own arguments for resuming, then with the lines to change:
    until it resumes. Where PyTorch does not read what it saved, PyTorch is allowed to. What was not
    seen to help is not proposed.
    """
    from spotctl.cli.script_trial import may_try
    from spotctl.files.script.reading import outside_paths
    from spotctl.trials.seen_work import Verdict
    from spotctl.trials.starts import ONLY_WEIGHTS

    asks = session.in_terminal and not request.silent
    if not (asks or request.try_):
        return script, None
    if asks and not may_try(
        session, str(request.script), outside_paths(script.source), request.allowed
    ):
        return script, None

    plain = replace(script, changes=(), seen=True, keep=(), is_plain=True)
    first = seen = _trial(session, request, plain)
    alone = replace(plain, is_alone=True)
    if seen.verdict is Verdict.FAILED and command_of(alone, "") != command_of(plain, ""):
        again = _trial(session, request, alone)
        if again.verdict is not Verdict.FAILED:
            plain, first, seen = alone, again, again
    if seen.verdict in (Verdict.RESUMED, Verdict.FAILED):
        return replace(plain, seen=seen.verdict is Verdict.RESUMED, keep=seen.keep), seen

    as_it_is, switched = f"as it is: {seen.verdict}: {seen.saw}", _with_switch(plain, seen)
    ways = [*switched, *([replace(script, is_alone=plain.is_alone)] if script.changes else [])]
    for number, way in enumerate(ways):
        changed = f"with {counted(len(way.changes), 'changed line')}"
        started = f"{TRUSTING} and " if way.trusts else ""
        how = changed if way.changes else f"with {started}the run line of its job"
        session.remark(f"{as_it_is}; now {how}")
        seen = _trial(session, request, way)
        if seen.verdict is Verdict.RESUMED:
            saw = f"{how}: {seen.saw} ({as_it_is})"
            return replace(way, keep=seen.keep), replace(seen, saw=saw)
        if ONLY_WEIGHTS in seen.saw and not (way.trusts or way.changes):
            ways.insert(number + 1, replace(way, trusts=True))
        if way in switched[:1] and seen.verdict is not Verdict.FAILED:
            first = seen

    return replace(plain, seen=False), first


def _with_switch(plain: TrainingScript, seen: Judgement) -> Sequence[TrainingScript]:
    """The script with its own argument for resuming, if it has any, from what it was seen to
    save; before that as it is, if PyTorch did not read it."""
    from spotctl.trials.starts import ONLY_WEIGHTS

    trusting = [replace(plain, trusts=True)] if ONLY_WEIGHTS in seen.saw else []
    globs = seen.saved[:_TRIED_SAVES] or ([""] if plain.saves or plain.uses_tools else [])
    switched = [replace(plain, is_plain=False, saved=glob) for glob in globs]
    # What follows the script only copies its results.
    ways = {_COPIES.split(command_of(way, "python")[0])[0]: way for way in switched}
    ways.pop(_COPIES.split(command_of(plain, "python")[0])[0], None)
    # Of a switch, the file only says whether there is anything.
    names_it = any("| sort" in command for command in ways)
    return [*trusting, *ways.values()][: len(trusting) + (_TRIED_SAVES if names_it else 1)]


def _trial(session: Session, request: ScriptRequest, script: TrainingScript) -> Judgement:
    """The verdict of a trial of the script, or of a copy with its changes."""
    from spotctl.cli.script_trial import tried
    from spotctl.trials.seen_work import Judgement, Verdict

    changed = dict[str, str]()
    if script.changes:
        text = applied(script.source.text, script.changes)
        changed[str(script.path)] = text
        again = read_script(request.script, script.folder, text)
        script = replace(again, typed=script.typed, start=script.start, is_alone=script.is_alone)
    text, missing = job_text(script, ScriptAnswers(), is_trial=True)
    if missing:
        lacking = f"it needs a value of yours for {', '.join(missing)}"
        return Judgement(Verdict.NOT_SEEN, f"{lacking}: add -- and what you type after the script")

    spec = replace(loads(text, request.job, session.settings.home), workdir=script.folder)
    return tried(session, spec, request.allowed, changed)


def _write_job(
    request: ScriptRequest,
    script: TrainingScript,
    answers: ScriptAnswers,
    seen: Judgement | None,
    first: str,
) -> Sequence[str]:
    text, missing = job_text(script, answers)
    text = first + text
    if seen is not None:
        with_changes = " with the changes that it proposes" if script.changes else ""
        tried = f"which has tried it{with_changes}: {seen.verdict}."
        text = text.replace(
            f"which has read the script ({script.framework}) and not run it.", tried, 1
        )

    if script.folder != request.job.parent.resolve():
        text = text.replace("kind: command\n", f"kind: command\nworkdir: {script.folder}\n", 1)
    write_new(request.job, text, force=request.force)
    return missing


def _write_trainer(
    request: ScriptRequest, script: TrainingScript, answers: ScriptAnswers
) -> tuple[Path, ComparedTrainer]:
    """Writes a trainer that trains as the script does, and its job; BadRequest names the lines that
    it cannot carry.
    """
    from agileml.errors import AgileMLError
    from agileml.runtime.prepared_job import isolated
    from spotctl.trials.trainer import compared_trainer

    path = request.script.with_name(f"{request.script.stem}_trainer.py")
    check_free(path, force=request.force)
    try:
        compared = isolated(
            partial(compared_trainer, script.path, script.folder),
            str(script.path),
            script.folder,
            {},
        )
    except AgileMLError as error:
        raise BadRequest(
            f"{script.path} cannot become a trainer as it is: {error}. Change these lines, or keep "
            f"the script: spotctl init {script.path}"
        ) from error

    app = path.resolve().relative_to(script.folder)
    text = trainer_job_text(script, answers, str(app), compared.steps)
    if script.folder != request.job.parent.resolve():
        text = text.replace("kind: agileml", f"workdir: {script.folder}\nkind: agileml", 1)
    write_new(path, compared.text, force=request.force)
    write_new(request.job, text, force=request.force)

    return path, compared


def _cost(session: Session, request: ScriptRequest, answers: ScriptAnswers) -> str:
    """The cost of an eviction to a script that does not resume, by the plan of its job."""
    from bidbrain.errors import BidBrainError
    from pricing_data.errors import PricingDataError
    from spotctl.home.errors import SpotctlError
    from spotctl.run.start.launch_plans import stored_plans
    from spotctl.show.plans.summary import restart_words

    try:
        planned = stored_plans(
            [load(request.job, home=session.settings.home)], session.settings, "", ""
        )
        return restart_words(planned.plans[0]) or "an eviction starts it from scratch"
    except (SpotctlError, PricingDataError, BidBrainError):
        return (
            "each eviction starts it from scratch and loses all work so far, up to "
            f"{span_text(answers.span)}"
        )


CHANGE: tuple[Column[Change], ...] = (
    Column("line", "line of the unchanged script"),
    Column("act", "`replace` the line, or `insert` before it"),
    Column("text", "the new line"),
)
TRIED: tuple[Column[Judgement], ...] = (
    Column(
        "verdict",
        "`resumed`, `restarted`, `failed` or `not seen`: of the script with its changes, if there "
        "are any",
    ),
    Column("saw", "what was seen"),
    Column("keep", "places of the job's folder that its next start needs"),
    Column("left", "files there that it writes, and that are not kept"),
)
SCRIPT: tuple[Column[Mapping[str, Any]], ...] = (
    Column("path", "the script, relative to the folder in which the job runs it"),
    Column("framework", "the library that trains"),
    Column(
        "resumes", "whether it goes on after an eviction as it is; null if a trial did not show it"
    ),
    Column("tried", "what a trial saw; null if the script was not tried", of=TRIED),
    Column("cost", "what an eviction costs it; null if it resumes"),
    Column("changes", "changes to the script so that evictions lose no work", each=CHANGE),
    Column("fill_in", "values that you have to fill in by hand"),
    Column("assumed", "true if nothing was asked"),
)


WRITTEN: tuple[Column[Mapping[str, Any]], ...] = (
    Column("file", "the job file that was written"),
    Column(
        "trainer", "with a script, the file of the trainer that was written; null without --trainer"
    ),
    Column(
        "difference", "how far three steps of script and trainer are apart; null without --trainer"
    ),
    Column("script", "with a script, what was read in it", of=SCRIPT),
    *TASK_WRITTEN[1:],
)
"""The JSON of `spotctl init`; without a script, only the first."""


def _report(
    session: Session, script: TrainingScript, cost: str | None, seen: Judgement | None
) -> None:
    if seen is not None:
        is_kept = seen.keep and script.resumes
        kept = f"; kept for the next machine: {', '.join(seen.keep)}" if is_kept else ""
        left = f" (not {', '.join(seen.left[:_SHOWN_FILES])})" if kept and seen.left else ""
        session.say(f"{script.path}, tried here: {seen.verdict}: {seen.saw}{kept}{left}")
    if cost is None:
        if seen is None:
            session.say(
                f"{script.path} saves and loads its checkpoint, as far as reading it shows; "
                "spotctl init"
                f" {script.path} --try --force kills it here and sees whether it resumes"
            )
        return

    if seen is not None and not script.changes:
        # Of a script that saves, the line above says what it lacks.
        cure = "save to a file now and then, load it when the script starts"
        cure = cure if seen.verdict == "not seen" else "correct that"
        session.say(f"As it is, {cost}: {cure}, and try again")
        return
    if seen is None:
        session.say(
            f"{script.path} does not resume, as far as reading it shows: {cost}",
            f"spotctl init {script.path} --try --force runs it here, and sees whether it resumes "
            "and what the next machine needs",
        )
        return

    session.say(
        f"As it is, {cost}",
        f"So that evictions lose no work, change {counted(len(script.changes), 'line')} of "
        f"{script.path}:",
    )
    for change in sorted(script.changes, key=attrgetter("line")):
        place = (
            f"replace line {change.line} by"
            if change.act == REPLACE
            else f"before line {change.line}, insert"
        )
        session.out.print(f"  {place}:", markup=False, soft_wrap=True)
        session.out.print(change.text, markup=False, soft_wrap=True)


def _next(request: ScriptRequest, answers: ScriptAnswers, *, is_proposed: bool) -> str:
    if is_proposed:
        return (
            f"next: change the script, then spotctl init {request.script} --try --force; or "
            f"spotctl plan {request.job}"
        )
    if answers.cloud != LOCAL:
        region = f" --region {name}" if (name := first_region(answers.cloud)) else ""
        return (
            f"next: spotctl prices fetch --cloud {answers.cloud}{region}, then spotctl plan "
            f"{request.job}"
        )
    return f"next: spotctl plan {request.job}, then spotctl launch {request.job}"
