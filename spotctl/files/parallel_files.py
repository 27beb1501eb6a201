"""Profiles and plans of pipeline parallelism: the files, and errors that name them."""

import json
from collections.abc import Sequence
from pathlib import Path

from agileml.errors import BadInput
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.profile.model_profile import ModelProfile
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest


def check_folder(file: Path | None) -> None:
    """Refuses a file to be written later whose folder is missing, before the work of hours is lost."""
    if file is not None and not file.parent.is_dir():
        raise BadRequest(f"{file}: there is no folder {file.parent}: create it, or name another file")


def load_profiles(path: Path, microbatch: int | None) -> tuple[ModelProfile, ...]:
    """A profile of `spotctl lab parallel profile`, or the graph text of a published one."""
    from agileml.pipeline.profile.graph_text import read_graph
    from agileml.pipeline.profile.model_profile import profiles_from_json

    text = _text(path)
    try:
        if text.lstrip().startswith(("{", "[")):
            profiles = profiles_from_json(json.loads(text))
            return profiles if microbatch is None else _of_size(profiles, microbatch)
        if microbatch is None:
            raise BadRequest("a graph text does not name its batch size: pass --microbatch N")
        return (read_graph(text, model=path.stem, microbatch=microbatch),)
    except (BadInput, BadRequest) as error:
        raise BadRequest(f"{path}: {error}") from None
    except ValueError as error:
        raise BadRequest(f"{path}: is not JSON: {error}") from None


def profiles_of(specs: Sequence[JobSpec]) -> dict[str, tuple[ModelProfile, ...]]:
    """The profiles of jobs whose model is split over devices, by job name."""
    profiles = {}
    for spec in specs:
        parallel = spec.program.parallel
        if parallel is not None:
            profiles[spec.name] = load_profiles(spec.workdir / parallel.profile, None)
    return profiles


def load_plan(place: str) -> ParallelPlan:
    """A plan that `spotctl lab parallel plan --json` wrote: a file, or the JSON itself."""
    from agileml.pipeline.plan.parallel_plan import plan_from_json

    inline = place.lstrip().startswith("{")
    name = "the plan" if inline else place
    try:
        return plan_from_json(json.loads(place if inline else _text(Path(place))))
    except BadInput as error:
        raise BadRequest(f"{name}: {error}") from None
    except ValueError as error:
        raise BadRequest(f"{name}: is not JSON: {error}") from None


def _of_size(profiles: tuple[ModelProfile, ...], microbatch: int) -> tuple[ModelProfile, ...]:
    chosen = tuple(profile for profile in profiles if profile.microbatch == microbatch)
    if not chosen:
        sizes = ", ".join(str(profile.microbatch) for profile in profiles)
        raise BadRequest(f"no profile with microbatch {microbatch}: choose from {sizes}, or profile that size")
    return chosen


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text") from None
