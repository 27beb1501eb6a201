"""`spotctl init` and `spotctl schema`: a starter job file, and the schema for editors."""

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session


def init(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Output file.")] = Path("job.yaml"),
    json_: JsonOption = False,
) -> None:
    """Write a commented starter job file that runs as it is on the local market.

    Example: spotctl init job.yaml && spotctl plan job.yaml

    \f

    Fields:
        file: the job file that was written
    """
    from spotctl.files.job.starter import write_starter

    session: Session = context.obj
    write_starter(file)
    session.answer(
        json_, {"file": str(file)}, None, f"wrote {file}; next: spotctl plan {file}, then spotctl launch {file}"
    )


def schema(context: typer.Context, _json: JsonOption = False) -> None:
    """Print the JSON Schema of job files, for completion and checks in your editor.

    Example: spotctl schema > job.schema.json
    """
    from spotctl.files.job import schema

    session: Session = context.obj
    session.answer_json(schema.schema())
