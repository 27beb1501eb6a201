"""`spotctl init` and `spotctl schema`: a job file to begin with, and what editors complete one from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session


def init(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("job.yaml"),
    json_: JsonOption = False,
) -> None:
    """Write a commented job file to begin with. It runs as it is, on the market of this computer.

    Example: spotctl init job.yaml && spotctl plan job.yaml
    """
    from spotctl.files.job.starter import write_starter

    session: Session = context.obj
    write_starter(file)
    if json_:
        session.answer_json({"file": str(file)})
    else:
        session.remark(f"wrote {file}; next: spotctl plan {file}, then spotctl launch {file}")


def schema(context: typer.Context, _json: JsonOption = False) -> None:
    """Print the JSON Schema of job files, from which editors complete and check them.

    Example: spotctl schema > job.schema.json
    """
    from spotctl.files.job import schema

    session: Session = context.obj
    session.answer_json(schema.schema())
