"""`spotctl init` and `spotctl schema`: a job file for a script or to start from, and the schema for
editors.
"""

import re
import shlex
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

_START, _GIVEN = "spotctl.start", "spotctl.given"
_SCRIPT = re.compile(r"\s-m\s+(?P<module>\w[\w.]*)(?=\s|$)|(?:^|\s)(?P<file>[^\s-]\S*\.py)(?=\s|$)")
"""The script in a command line."""
_PLAIN_START = re.compile(r"(python[0-9.]*\s+(-u\s+)?)?\S+")


class InitCommand(TyperCommand):
    """The command, which takes a command line of one word apart: 'torchrun train.py --lr 3'. It
    leaves the words behind the script, and those behind --, to the script.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        end = args.index("--") if "--" in args else len(args)
        words, given, start = args[:end], args[end + 1 :], ""
        for number, word in enumerate(words):
            is_command = " " in word and not Path(word).exists()
            for script in _SCRIPT.finditer(word) if is_command else ():
                # Modules such as torch.distributed.run start the script that follows.
                file = script["file"] or f"{script['module'].replace('.', '/')}.py"
                if script["file"] or Path(file).is_file():
                    words[number], start = file, word[: script.end()].strip()
                    given = [*shlex.split(word[script.end() :]), *given]
                    break

        ctx.meta[_GIVEN] = tuple(given)
        ctx.meta[_START] = "" if _PLAIN_START.fullmatch(start) else start
        return super().parse_args(ctx, words)


def init(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="Your training script, or a task of SkyPilot or dstack; or the job file to write."
        ),
    ] = Path("job.yaml"),
    job: Annotated[
        Path, typer.Argument(help="For a script or a task: the job file to write.")
    ] = Path("job.yaml"),
    trainer: Annotated[
        bool,
        typer.Option(
            "--trainer",
            help="Make the script's PyTorch loop an elastic trainer, and compare three steps of "
            "both.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; note assumptions in the file.")
    ] = False,
    try_: Annotated[
        bool,
        typer.Option(
            "--try", help="Run the script here, kill it twice, and see whether it resumes."
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="What a trial may use, which it otherwise lacks: network, credentials, gpu. "
            "Repeatable."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Write a commented job file: for your training script, or a starter that runs on the local
    market.

    Words after -- are the script's own, and become part of the job's command; so do those of a whole
    command in quotes. On a terminal, init
    asks where the script runs, for how long, and where checkpoints are kept.

    It also asks whether to try the script: a copy of its folder, unchanged, is killed after a save
    and during one, and started again as on the next machine. What its second start needs of the
    files that it wrote is kept: checkpoint.keep. If it repeats work, its own switch for resuming
    and then lines to change are tried. The verdict is resumed (work is not repeated), restarted,
    failed, or not seen. Without a terminal, with --yes and with --json, only --try does that.

    A task of SkyPilot or dstack (type: task) becomes a job file, too: its resources, nodes,
    variables, commands and buckets. What has no counterpart is listed with its line. A pipeline
    becomes a job file for each task, to be launched in their order.

    With --trainer, three steps of the script run here. Lines that a trainer cannot carry are
    listed, and nothing is written.

    Example: spotctl init train.py && spotctl plan job.yaml

    Example: spotctl init train.py --try -- --lr 3e-4 --output_dir out

    Example: spotctl init task.yaml job.yaml
    """
    session: Session = context.obj
    given, start = context.meta[_GIVEN], context.meta[_START]
    if " " in file.name and not file.exists():
        raise BadRequest(
            f"{file}: is no file; give init the script, and its arguments behind --: spotctl init "
            "train.py -- --lr 3e-4"
        )
    if file.suffix == ".py" or (file.is_file() and file.suffix not in (".yaml", ".yml")):
        from spotctl.cli.script_job import ScriptRequest, write_script_job
        from spotctl.trials.sandbox import ALLOWABLE

        for word in allow or ():
            if word not in ALLOWABLE:
                raise BadRequest(f"--allow {word}: is not one of {', '.join(ALLOWABLE)}")
        request = ScriptRequest(
            file, job, trainer, force, yes or json_, try_, tuple(allow or ()), given, start
        )
        write_script_job(session, request, json_=json_)
        return
    if given:
        raise BadRequest(f"{file}: is no script; -- and words after it are for a script's command")
    if try_ or allow:
        raise BadRequest(
            f"{file}: is no script; --try needs one, and launch --rehearse tries a job file"
        )

    from spotctl.cli.task_jobs import tasks_of_another_tool, write_task_jobs

    if not trainer and file.is_file() and (tasks := tasks_of_another_tool(file)):
        write_task_jobs(session, tasks, job, force=force, json_=json_)
        return
    if trainer:
        raise BadRequest(
            f"{file}: is no script; --trainer needs one, such as spotctl init train.py --trainer"
        )

    from spotctl.files.user_files import editor_line, starter_text, write_new

    write_new(file, editor_line(session.settings.home) + starter_text(), force=force)
    session.answer(
        json_,
        {"file": str(file)},
        None,
        f"wrote {file}; next: spotctl plan {file}, then spotctl launch {file}",
    )


def schema(
    context: typer.Context,
    key: Annotated[
        str, typer.Argument(help="Explain this key: deadline, or checkpoint.every.")
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Print the JSON Schema of job files, for completion and checks in your editor; or explain one
    key.

    Job files that spotctl init writes begin with a line that names the schema to the editor. It is
    a file of this computer, and works offline. To share it with others, keep the schema next to the
    job file.

    Example: spotctl schema checkpoint

    Example: spotctl schema > job.schema.json
    """
    from spotctl.files.job import reader
    from spotctl.files.job.sections import flow

    session: Session = context.obj
    if not key:
        session.answer_json(reader.schema())
        return

    keys = reader.explained(key)
    if json_:
        session.answer_json(keys)
        return

    for name, about in keys.items():
        session.out.print(
            f"{name}: {about['description']}", markup=False, highlight=False, soft_wrap=True
        )
        for example in about["examples"]:
            content = reduce(lambda inner, step: {step: inner}, reversed(name.split(".")), example)
            session.out.print(f"    {flow(content)}", markup=False, highlight=False, soft_wrap=True)
