"""`spotctl init task.yaml`: the job file of a task of SkyPilot or dstack, and what of the task it lacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.units import counted
from spotctl.cli.script_job import TASK_WRITTEN
from spotctl.files.job.reader import loads
from spotctl.files.tasks.dstack import dstack_draft
from spotctl.files.tasks.skypilot import skypilot_draft
from spotctl.files.user_files import check_free, editor_line, write_new
from spotctl.files.yaml_file import YamlFile, read
from spotctl.home.errors import BadRequest
from spotctl.show.columns import as_json

if TYPE_CHECKING:
    from spotctl.cli.session import Session

_OVERWRITE = "or write over it with --force"
_OF_SKYPILOT = {"run", "resources", "setup", "num_nodes", "file_mounts", "envs", "workdir", "service"}


def task_of_another_tool(path: Path) -> YamlFile | None:
    """The file, if it is a task of SkyPilot or something of dstack."""
    file = read(path)
    content = file.content if isinstance(file.content, dict) else {}
    resources = content.get("resources")
    is_own = "kind" in content or (isinstance(resources, dict) and "clouds" in resources)
    return file if not is_own and ("type" in content or content.keys() & _OF_SKYPILOT) else None


def write_task_job(session: Session, file: YamlFile, job: Path, *, force: bool, json_: bool) -> None:
    """Writes the job file, and says what was left out, with its line and what to use instead."""
    check_free(job, force=force, cure=_OVERWRITE)
    folder = Path(os.path.relpath(file.path.parent.resolve(), job.parent.resolve()))
    content = file.content
    assert isinstance(content, dict)
    draft = (dstack_draft if "type" in content else skypilot_draft)(file, folder)
    named = content.get("name")
    text = draft.text(named if isinstance(named, str) and named else file.path.name.lstrip(".").partition(".")[0])
    try:
        loads(text, job, session.settings.home)
    except BadRequest as error:
        raise BadRequest(f"{file.path}: gives a job that is refused: {error}") from error
    write_new(job, editor_line(session.settings.home) + text, force=force, cure=_OVERWRITE)
    left = draft.listed()
    if json_:
        rows = [{"line": line, "key": key, "reason": why} for line, key, why in left]
        session.answer_json(as_json(TASK_WRITTEN, {"file": str(job), "tool": draft.tool, "left_out": rows}))
        return
    if left:
        session.say(f"{file.path} has {counted(len(left), 'part')} without a counterpart:")
    for line, key, why in left:
        session.out.print(f"  line {line}: {key}: {why}", markup=False, soft_wrap=True)
    if "checkpoint" not in draft.program:
        session.say(
            "An eviction starts this job from scratch: add checkpoint (spotctl init SCRIPT.py prints the lines)"
        )
    session.remark(f"wrote {job} from a task of {draft.tool}; next: correct hours and budget, then spotctl plan {job}")
