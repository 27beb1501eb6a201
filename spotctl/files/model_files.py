"""Files of models: profiles and plans of pipeline parallelism, and trained models."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agileml.errors import AgileMLError, BadInput
from agileml.params.layout import Array
from agileml.pipeline.plan.parallel_plan import ParallelPlan
from agileml.pipeline.profile.model_profile import ModelProfile
from pricing_data.atomic_write import atomic_write
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from agileml.job import Counters


def check_folder(file: Path | None) -> None:
    """Refuses a file to be written later whose folder is missing, before the work of hours is
    lost."""
    if file is not None and not file.parent.is_dir():
        raise BadRequest(
            f"{file}: there is no folder {file.parent}: create it, or name another file"
        )


def load_profiles(path: Path, microbatch: int | None) -> tuple[ModelProfile, ...]:
    """A profile of `spotctl lab parallel profile`, or the graph text of a published one."""
    from agileml.pipeline.profile.graph_text import read_graph
    from agileml.pipeline.profile.model_profile import profiles_from_json

    text = _text(path)
    try:
        if text.lstrip().startswith(("{", "[")):
            profiles = profiles_from_json(json.loads(text))
            chosen = tuple(
                profile for profile in profiles if microbatch in (None, profile.microbatch)
            )
            if not chosen and microbatch is not None:
                sizes = ", ".join(str(profile.microbatch) for profile in profiles)
                raise BadRequest(
                    f"no profile with microbatch {microbatch}: choose from {sizes}, or profile "
                    "that size"
                )
            return chosen
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text") from None


def save_model(model: Mapping[str, Array], path: Path) -> None:
    """Writes the arrays; the file is complete or absent."""
    # numpy.savez takes names as keyword arguments, which some parameter names cannot be.
    with atomic_write(path) as out, zipfile.ZipFile(out, "w") as archive:
        for name, array in model.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def check_nothing_lost(counters: Counters) -> None:
    """Raises AgileMLError if the model lacks updates or contains some twice."""
    if counters.lost or counters.doubled:
        raise AgileMLError(
            f"{counters.lost:,} updates were lost and {counters.doubled:,} applied twice, which is "
            "a bug in spotctl: do not use this model, and report the iteration log"
        )
