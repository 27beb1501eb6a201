"""A rehearsal: a job's own command, for a few seconds on this computer, before anything is rented.

If the command writes checkpoints meanwhile, the job is planned with the size and the time of these.
"""

import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from agileml.errors import AgileMLError
from agileml.runtime.prepared_job import isolated_shape_of
from pricing_data.units import SECOND, counted
from spotctl.agent.checkpoints.interval import CHECKPOINT_VARIABLE
from spotctl.agent.container.processes import MARK, RunningCommand
from spotctl.agent.data.transfer import FolderListing, listing, local_copy
from spotctl.agent.errors import AgentError
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.node import EVERY_VARIABLE
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec, data_variable, output_variable
from spotctl.home.errors import BadRequest
from spotctl.planning.facts import transfer_time
from spotctl.planning.values import GB
from spotctl.run.environment import secrets_of
from spotctl.run.notify import hidden
from spotctl.run.work.gang import node_variables
from spotctl.run.work.training_nodes import free_port
from spotctl.run.work.training_workload import training_job

SECONDS = 10.0
_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_STILL_SECONDS = 0.5
"""A checkpoint is written once its folder has not changed for so long."""
_SAVES = 5
"""How often the command is asked to save."""
_LONGEST_QUOTE = 300
_HERE = "127.0.0.1"


def rehearse(
    spec: JobSpec, cache: Path, seconds: float = SECONDS, say: Callable[[str], object] = lambda _: None
) -> JobSpec:
    """Runs a job's command, or loads its trainer, in a copy of the job's folder. BadRequest: it fails.

    Returns the job with the size and the time of a checkpoint, as far as the file does not say them and the command
    wrote any. Its checkpoints and outputs are lost. The setup is not run, because it could change this computer.
    """
    _check(spec)
    with tempfile.TemporaryDirectory(prefix="spotctl-rehearsal-") as name:
        scratch = Path(name)
        folder = scratch / "job"
        # The files that machines get.
        with tarfile.open(job_archive(spec.workdir, scratch).path) as archive:
            archive.extractall(folder, filter="fully_trusted")  # noqa: S202 - the user's own files, packed just now
        variables = {**os.environ, **spec.env, **secrets_of(spec)}
        try:
            variables |= {data_variable(name): str(local_copy(place, cache)) for name, place in spec.data.items()}
        except AgentError as error:
            raise BadRequest(f"{spec.name}: {error}") from error
        if isinstance(spec.program, Command):
            saves, kept = _run(spec, spec.program.run, scratch, folder, variables, seconds), spec.program.checkpoint
            if kept is not None and kept.takes is None and saves.seconds:
                written, size = median(saves.seconds), kept.size or saves.size
                # It is written there, and copied from its machine.
                takes = max(round(written * SECOND) + transfer_time(size / GB), 1)
                number, megabytes = counted(len(saves.seconds), "checkpoint"), saves.size / 1e6
                each = f"{megabytes:.3g} MB in {written:.2g} s; the plan counts {takes / SECOND:.2g} s for each"
                say(f"{spec.name}: wrote {number} here, of {each}")
                # Job files state sizes in megabytes.
                seen = replace(kept, takes=takes, size=kept.size or max(round(size / 1e6), 1) * 10**6)
                return replace(spec, program=replace(spec.program, checkpoint=seen))
        if isinstance(spec.program, Training):
            try:
                isolated_shape_of(training_job(replace(spec, workdir=folder)), folder, variables)
            except AgileMLError as error:
                raise _failure(spec, str(error).replace(str(folder), str(spec.workdir))) from error
    return spec


def _check(spec: JobSpec) -> None:
    """Refuses what this computer cannot rehearse."""
    if spec.image.container is not None:
        raise BadRequest(f"{spec.name}: --rehearse runs no containers; try the command with podman")
    if spec.program.parallel is not None:
        trial = "the command with a plan of its own" if isinstance(spec.program, Command) else "lab parallel train"
        raise BadRequest(f"{spec.name}: --rehearse cannot split a model; try {trial}")
    remote = [location for location in spec.data.values() if "://" in location]
    if remote and not spec.is_local:
        raise BadRequest(f"{spec.name}: --rehearse does not copy {remote[0]} to this computer")
    if not spec.is_local:
        check_folder(spec.workdir)


class _SaveWatch:
    """The saves of a command into a folder: the `seconds` of each, from its first change to its last, and the `size` of
    the folder."""

    def __init__(self, folder: Path) -> None:
        self.seconds, self.size = list[float](), 0
        self._folder = folder
        self._files: FolderListing = ()
        self._looked = self._changed = time.monotonic()
        self._began: float | None = None

    def look(self, *, is_last: bool = False) -> None:
        """Compares the folder with the last look. Nothing changes it after the last one."""
        # Files that are still being written, too.
        files, now = listing(self._folder, unfinished=True), time.monotonic()
        if files != self._files:
            self._began = self._looked if self._began is None else self._began
            self._changed = now
        if self._began is not None and (is_last or now - self._changed >= _STILL_SECONDS):
            self.seconds.append(self._changed - self._began)
            self._began = None
            self.size = sum(size for _, size, *_ in listing(self._folder))
        self._files, self._looked = files, now


def _run(
    spec: JobSpec, run: str, scratch: Path, folder: Path, variables: Mapping[str, str], seconds: float
) -> _SaveWatch:
    printed = scratch / "printed"
    # The only node of a run, with empty folders for its checkpoints and outputs.
    folders = {CHECKPOINT_VARIABLE: scratch / "checkpoint"}
    folders |= {output_variable(name): scratch / "outputs" / name for name in spec.outputs}
    for place in folders.values():
        place.mkdir(parents=True)
    environment = {
        **variables,
        "SPOTCTL_JOB": spec.name,
        "SPOTCTL_RUN": f"{spec.name}-rehearsal",
        "SPOTCTL_ATTEMPT": "1",
        EVERY_VARIABLE: f"{seconds / _SAVES:g}",
        **node_variables(0, [_HERE], free_port()),
        **{variable: str(place) for variable, place in folders.items()},
        MARK: str(scratch),
    }
    command = RunningCommand(["/bin/sh", "-c", run], folder, environment, printed, scratch)
    watch = _SaveWatch(folders[CHECKPOINT_VARIABLE])

    def runs_until(moment: float) -> int | None:
        while (code := command.exit_code()) is None and time.monotonic() < moment:
            watch.look()
            time.sleep(_LOOK_SECONDS)
        return code

    try:
        code = runs_until(time.monotonic() + seconds)
        if code is None:
            # Many programs save when they are told to end.
            command.terminate()
            runs_until(time.monotonic() + _GRACE_SECONDS)
    finally:
        command.end(0.0)
    if code not in (None, 0, SAVED_AND_ENDED):
        lines = [line.strip() for line in printed.read_text(errors="replace").splitlines() if line.strip()]
        said = lines[-1][-_LONGEST_QUOTE:] if lines else "it printed nothing"
        said = hidden(said.replace(str(folder), str(spec.workdir)), secrets_of(spec).values())
        raise _failure(spec, f"status {code}: {said}")
    watch.look(is_last=True)
    return watch


def _failure(spec: JobSpec, why: str) -> BadRequest:
    setup = "; --rehearse does not run the setup: install here what it installs" if spec.setup else ""
    return BadRequest(f"{spec.name}: the rehearsal failed with {why}{setup}")
