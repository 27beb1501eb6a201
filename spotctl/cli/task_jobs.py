"""`spotctl init` with a task of SkyPilot or dstack: a job file for each task in the file, and what
the job lacks, with its line and what to use instead.

A file of several tasks is a pipeline, which SkyPilot runs in their order. Its job files are
numbered, and launched one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing_data.units import counted
from spotctl.files.job.forms import job_name
from spotctl.files.job.reader import loads
from spotctl.files.tasks.draft import JobDraft
from spotctl.files.tasks.dstack import dstack_draft
from spotctl.files.tasks.skypilot import skypilot_draft
from spotctl.files.user_files import check_free, editor_line, write_new
from spotctl.files.yaml_file import Problem, YamlFile, read_all, refusal
from spotctl.home.errors import BadRequest
from spotctl.show.columns import Column, as_json

if TYPE_CHECKING:
    from spotctl.cli.session import Session

_OF_SKYPILOT = {
    "run",
    "resources",
    "setup",
    "num_nodes",
    "file_mounts",
    "envs",
    "workdir",
    "service",
}
_OF_PIPELINES = {"name", "execution", "primary_tasks", "termination_delay"}
"""The keys of a pipeline's first document, which describes no task."""

_LEFT_OUT: tuple[Column[Mapping[str, Any]], ...] = (
    Column("line", "line of the task"),
    Column("key", "the part of the task that the job lacks, such as `resources.ports`"),
    Column("reason", "why, and what to use instead"),
)
TASK_WRITTEN: tuple[Column[Mapping[str, Any]], ...] = (
    Column("file", "the job file that was written"),
    Column("files", "with a task, all job files, in the order of a pipeline", optional=True),
    Column("tool", "with a task of another tool, which: SkyPilot or dstack", optional=True),
    Column("left_out", "parts of the task without a counterpart", each=_LEFT_OUT, optional=True),
)
"""The JSON of `spotctl init` with a task of another tool."""


def tasks_of_another_tool(path: Path) -> list[YamlFile]:
    """The tasks in a file of SkyPilot or dstack, in their order; none if it is no such file."""
    documents = read_all(path)
    contents = [file.content if isinstance(file.content, dict) else {} for file in documents]
    if len(documents) > 1 and contents[0].keys() <= _OF_PIPELINES:
        header, *documents = documents
        if contents.pop(0).get("execution") == "parallel":
            why = "tasks that run at the same time have no counterpart; give init a task alone"
            raise refusal(header, [Problem(("execution",), why)])

    for content in contents:
        resources = content.get("resources")
        is_own = "kind" in content or (isinstance(resources, dict) and "clouds" in resources)
        if is_own or not ("type" in content or content.keys() & _OF_SKYPILOT):
            return []
    return documents


def write_task_jobs(
    session: Session, tasks: Sequence[YamlFile], job: Path, *, force: bool, json_: bool
) -> None:
    """Writes the job files, all or none, and says what was left out."""
    drafts = dict[Path, JobDraft]()
    texts = dict[Path, str]()
    for number, task in enumerate(tasks, 1):
        name = _name(task)
        step = f"-{number}-{job_name(name)}" if len(tasks) > 1 else ""
        path = job.with_name(f"{job.stem}{step}{job.suffix}")
        check_free(path, force=force)

        folder = Path(os.path.relpath(task.path.parent.resolve(), job.parent.resolve()))
        content = task.content
        read = dstack_draft if isinstance(content, dict) and "type" in content else skypilot_draft
        drafts[path] = read(task, folder)
        texts[path] = drafts[path].text(name)
        try:
            loads(texts[path], path, session.settings.home)
        except BadRequest as error:
            raise BadRequest(f"{task.path}: gives a job that is refused: {error}") from error

    for path, text in texts.items():
        write_new(path, editor_line(session.settings.home) + text, force=force)

    left = [part for draft in drafts.values() for part in draft.listed()]
    files = [str(path) for path in drafts]
    tool = next(iter(drafts.values())).tool
    if json_:
        rows = [{"line": line, "key": key, "reason": why} for line, key, why in left]
        row = {"file": files[0], "files": files, "tool": tool, "left_out": rows}
        session.answer_json(as_json(TASK_WRITTEN, row))
        return

    if left:
        parts = counted(len(left), "part")
        session.say(f"{tasks[0].path} has {parts} without a counterpart:")
    for line, key, why in left:
        session.out.print(f"  line {line}: {key}: {why}", markup=False, soft_wrap=True)

    if not all("checkpoint" in draft.program for draft in drafts.values()):
        session.say(
            "An eviction starts this job from scratch: add checkpoint (spotctl init SCRIPT.py "
            "prints the lines)"
        )
    session.remark(f"wrote {', '.join(files)} from a task of {tool}; next: {_next(files)}")


def _next(files: Sequence[str]) -> str:
    plan = f"correct hours and budget, then spotctl plan {files[0]}"
    if len(files) == 1:
        return plan
    launches = " && ".join(f"spotctl launch {file}" for file in files)
    return f"{plan}; the tasks run in their order with {launches}"


def _name(task: YamlFile) -> str:
    """A task's name, or that of its file."""
    named = task.content.get("name") if isinstance(task.content, dict) else None
    if isinstance(named, str) and named:
        return named
    return task.path.name.lstrip(".").partition(".")[0]
