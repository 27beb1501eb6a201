"""`spotctl init` and `spotctl schema`: a job file for a script or to start from, and the schema for
editors.
"""

from functools import reduce
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest


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

    A script is read: its framework, arguments, saves and data. Then init says which lines of the
    script to change so that evictions lose no work. On a terminal, it asks where the script runs,
    for how long, and where checkpoints are kept.

    It also asks whether to try the script: in a copy of its folder, for a minute at most, it is
    killed after a save and during one, and started again as on the next machine. The verdict is
    resumed (work is not repeated), restarted, or not seen. If lines are to be changed, the changed
    copy is tried. Without a terminal, with --yes and with --json, only --try does that.

    A task of SkyPilot or dstack (type: task) becomes a job file, too: its resources, nodes,
    variables, commands and buckets. What has no counterpart is listed with its line. A pipeline
    becomes a job file for each task, to be launched in their order.

    With --trainer, three steps of the script run here. Lines that a trainer cannot carry are
    listed, and nothing is written.

    Example: spotctl init train.py && spotctl plan job.yaml

    Example: spotctl init task.yaml job.yaml
    """
    session: Session = context.obj
    if file.suffix == ".py" or (file.is_file() and file.suffix not in (".yaml", ".yml")):
        from spotctl.cli.script_job import ScriptRequest, write_script_job
        from spotctl.trials.sandbox import ALLOWABLE

        for word in allow or ():
            if word not in ALLOWABLE:
                raise BadRequest(f"--allow {word}: is not one of {', '.join(ALLOWABLE)}")
        request = ScriptRequest(file, job, trainer, force, yes or json_, try_, tuple(allow or ()))
        write_script_job(session, request, json_=json_)
        return
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
