"""`spotctl init train.py`: asks what only a person knows, writes the job file, and says what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pricing_data.units import HOUR, MINUTE, counted
from spotctl.files.job.conversions import read_span, span_text
from spotctl.files.job.reader import load
from spotctl.files.script.job_text import LOCAL, ScriptAnswers, bucket_example, first_region, job_text
from spotctl.files.script.reading import FRAMEWORK_CHANGES, REPLACE, Change, TrainingScript, read_script
from spotctl.files.script.trainer_text import skeleton_of, trainer_job_text
from spotctl.files.user_files import check_free, write_new
from spotctl.home.cloud import rented_clouds
from spotctl.show.columns import Column, as_json

if TYPE_CHECKING:
    from spotctl.cli.session import Session

_OVERWRITE = "or write over it with --force"


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A script, the job file to write, and whether to write a trainer, to write over files, and to ask nothing."""

    script: Path
    job: Path
    trainer: bool
    force: bool
    silent: bool


def write_script_job(session: Session, request: ScriptRequest, *, json_: bool) -> None:
    """Writes the job file of a script, and with `trainer` a trainer's skeleton, and reports on the script."""
    # The job runs the script in the folder of the job file, if that contains the script.
    folder, path = request.job.parent.resolve(), request.script.resolve()
    script = read_script(request.script, folder if path.is_relative_to(folder) else path.parent)
    check_free(request.job, force=request.force, cure=_OVERWRITE)
    answers = ScriptAnswers() if request.silent or not session.in_terminal else _asked(request.script)
    if request.trainer:
        skeleton, fill_in = _write_trainer(request, script, answers)
    else:
        skeleton, fill_in = None, _write_job(request, script, answers)
    cost = None if request.trainer or script.resumes else _cost(session, request, answers)
    if json_:
        about = {
            "path": str(script.path),
            "framework": script.libraries.framework,
            "resumes": script.resumes,
            "cost": cost,
            "changes": script.changes,
            "start_again": list(_start_again(script)),
            "fill_in": list(fill_in),
            "assumed": answers.assumed,
        }
        trainer = None if skeleton is None else str(skeleton)
        session.answer_json(as_json(WRITTEN, {"file": str(request.job), "trainer": trainer, "script": about}))
        return
    if not request.trainer:
        _report(session, script, cost)
    if fill_in:
        where = skeleton or f"run: in {request.job}"
        session.say(f"To fill in, in {where}: {', '.join(fill_in)}")
    written = f"{request.job} and {skeleton}" if skeleton else str(request.job)
    session.remark(f"wrote {written}; {_next(request, script, answers)}")


def _asked(script: Path) -> ScriptAnswers:
    clouds = (LOCAL, *rented_clouds())

    def cloud_named(text: str) -> str:
        if text.strip().lower() not in clouds:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(clouds)}")
        return text.strip().lower()

    cloud = typer.prompt(f"Where will {script} run ({', '.join(clouds)})?", LOCAL, value_proc=cloud_named, err=True)
    default = span_text(MINUTE if cloud == LOCAL else HOUR)
    where = "on this computer" if cloud == LOCAL else "on one machine"
    span = typer.prompt(f"How long does it take {where} if never interrupted?", default, value_proc=_span, err=True)
    bucket = ""
    if cloud != LOCAL:
        bucket = typer.prompt("Which bucket keeps its checkpoints?", bucket_example(cloud), err=True)
    return ScriptAnswers(cloud, span, bucket, assumed=False)


def _span(text: str) -> int:
    try:
        return read_span(text.strip())
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}; write 90s, 15m or 10h") from None


def _write_job(request: ScriptRequest, script: TrainingScript, answers: ScriptAnswers) -> Sequence[str]:
    text, command = job_text(script, answers)
    if script.folder != request.job.parent.resolve():
        text = text.replace("kind: command\n", f"kind: command\nworkdir: {script.folder}\n", 1)
    write_new(request.job, text, force=request.force, cure=_OVERWRITE)
    return command.missing


def _write_trainer(
    request: ScriptRequest, script: TrainingScript, answers: ScriptAnswers
) -> tuple[Path, Sequence[str]]:
    path = request.script.with_name(f"{request.script.stem}_trainer.py")
    skeleton, missing = skeleton_of(script)
    check_free(path, force=request.force, cure=_OVERWRITE)
    app = path.resolve().relative_to(script.folder)
    text = trainer_job_text(script, answers, str(app))
    if script.folder != request.job.parent.resolve():
        text = text.replace("kind: agileml", f"workdir: {script.folder}\nkind: agileml", 1)
    write_new(path, skeleton, force=request.force, cure=_OVERWRITE)
    write_new(request.job, text, force=request.force, cure=_OVERWRITE)
    return path, missing


def _cost(session: Session, request: ScriptRequest, answers: ScriptAnswers) -> str:
    """The cost of an eviction to a script that does not resume, by the plan of its job."""
    from bidbrain.errors import BidBrainError
    from pricing_data.errors import PricingDataError
    from spotctl.home.errors import SpotctlError
    from spotctl.run.start.launch_plans import stored_plans
    from spotctl.show.plans.summary import restart_words

    try:
        planned = stored_plans([load(request.job)], session.settings, "", "")
        return restart_words(planned.plans[0]) or "an eviction starts it from scratch"
    except (SpotctlError, PricingDataError, BidBrainError):
        return f"each eviction starts it from scratch and loses all work so far, up to {span_text(answers.span)}"


CHANGE: tuple[Column[Change], ...] = (
    Column("line", "line of the unchanged script"),
    Column("act", "`replace` the line, or `insert` before it"),
    Column("text", "the new line"),
)
SCRIPT: tuple[Column[Mapping[str, Any]], ...] = (
    Column("path", "the script, relative to the folder in which the job runs it"),
    Column("framework", "the library that trains"),
    Column("resumes", "whether it goes on after an eviction as it is"),
    Column("cost", "what an eviction costs it; null if it resumes"),
    Column("changes", "changes to the script so that evictions lose no work", each=CHANGE),
    Column("start_again", "plain values that start again after an eviction"),
    Column("fill_in", "values that only a person can give"),
    Column("assumed", "true if nothing was asked"),
)
WRITTEN: tuple[Column[Mapping[str, Any]], ...] = (
    Column("file", "the job file that was written"),
    Column("trainer", "with a script, the skeleton of a trainer that was written; null without --trainer"),
    Column("script", "with a script, what was read in it", of=SCRIPT),
)
"""The JSON of `spotctl init`; without a script, only the first."""


def _start_again(script: TrainingScript) -> Sequence[str]:
    uses_loop = any("resuming(" in change.text for change in script.changes)
    return script.loop.values if uses_loop and script.loop is not None else ()


def _report(session: Session, script: TrainingScript, cost: str | None) -> None:
    if cost is None:
        session.say(f"{script.path} resumes from its checkpoint: an eviction loses only the work since the last save")
        return
    session.say(f"{script.path} {_lack(script)}: {cost}")
    if not script.changes:
        session.say(
            f"No loop to change was recognized in {script.path}: save to $SPOTCTL_CHECKPOINT_DIR while it trains, load"
            " from there when it starts, and uncomment checkpoint: in the job file"
        )
        return
    session.say(f"So that evictions lose no work, change {counted(len(script.changes), 'line')} of {script.path}:")
    for change in sorted(script.changes, key=lambda change: change.line):
        place = f"replace line {change.line} by" if change.act == REPLACE else f"before line {change.line}, insert"
        session.out.print(f"  {place}:", markup=False, soft_wrap=True)
        session.out.print(change.text, markup=False, soft_wrap=True)
    if values := _start_again(script):
        session.say(
            f"These start again after an eviction, unless you keep them in a dict for resuming(): {', '.join(values)}"
        )


def _lack(script: TrainingScript) -> str:
    if script.libraries.framework in FRAMEWORK_CHANGES:
        return "does not resume"
    if not script.saves_in_time:
        return "saves nothing while it trains"
    if not script.can_load:
        return "never loads what it saves"
    return "saves where the next machine does not look" if script.changes else "saves and loads in an unknown place"


def _next(request: ScriptRequest, script: TrainingScript, answers: ScriptAnswers) -> str:
    if script.changes and not request.trainer:
        return f"next: change the script, then spotctl init {request.script} --force; or spotctl plan {request.job}"
    if answers.cloud != LOCAL:
        region = f" --region {name}" if (name := first_region(answers.cloud)) else ""
        return f"next: spotctl prices fetch --cloud {answers.cloud}{region}, then spotctl plan {request.job}"
    return f"next: spotctl plan {request.job}, then spotctl launch {request.job}"
