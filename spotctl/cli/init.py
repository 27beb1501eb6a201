"""`spotctl init` and `spotctl schema`: a job file for a script or to start from, and the schema for editors."""

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest


def init(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Your training script; or the job file to write.")] = Path("job.yaml"),
    job: Annotated[Path, typer.Argument(help="For a script: the job file to write.")] = Path("job.yaml"),
    trainer: Annotated[
        bool, typer.Option("--trainer", help="Also write a trainer's skeleton from the script's PyTorch network.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; note assumptions in the file.")] = False,
    json_: JsonOption = False,
) -> None:
    """Write a commented job file: for your training script, or a starter that runs on the local market.

    A script is read, not run: its framework, arguments, saves and data. Then init says which lines of the script to
    change so that evictions lose no work. On a terminal, it asks where the script runs, for how long, and where
    checkpoints are kept.

    Example: spotctl init train.py && spotctl plan job.yaml
    """
    session: Session = context.obj
    if file.suffix == ".py" or (file.is_file() and file.suffix not in (".yaml", ".yml")):
        from spotctl.cli.script_job import ScriptRequest, write_script_job

        write_script_job(session, ScriptRequest(file, job, trainer, force, yes or json_), json_=json_)
        return
    if trainer:
        raise BadRequest(f"{file}: is no script; --trainer needs one, such as spotctl init train.py --trainer")
    from spotctl.files.user_files import starter_text, write_new

    write_new(file, starter_text(), force=force)
    session.answer(
        json_, {"file": str(file)}, None, f"wrote {file}; next: spotctl plan {file}, then spotctl launch {file}"
    )


def schema(context: typer.Context, _json: JsonOption = False) -> None:
    """Print the JSON Schema of job files, for completion and checks in your editor.

    Example: spotctl schema > job.schema.json
    """
    from spotctl.files.job import reader

    session: Session = context.obj
    session.answer_json(reader.schema())
