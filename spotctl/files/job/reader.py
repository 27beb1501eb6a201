"""From a job.yaml to a `JobSpec`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError

from pricing_data.market import api_region, is_region_of
from pricing_data.units import MINUTE
from spotctl.errors import BadRequest
from spotctl.files.job.checks import problems
from spotctl.files.job.errors import problems_of, refusal
from spotctl.files.job.parts import CheckpointPart, JobFile, NeedsPart, StopPart
from spotctl.files.job.spec import (
    AUTO,
    Checkpoint,
    Command,
    Image,
    JobSpec,
    Kind,
    LocalMarket,
    Needs,
    Objective,
    Range,
    Reliable,
    Resources,
    Stop,
    Training,
)
from spotctl.files.yaml_file import YamlFile, parse, read

_FILE = "file://"
_HAS_SCHEME = re.compile(r"\w+://")


def load(path: Path) -> JobSpec:
    """The job that a file describes; BadRequest says in one line what is wrong with it, and where."""
    return _checked(read(path))


def loads(text: str, path: Path) -> JobSpec:
    """The same of a text that is, or will be, the file of this name."""
    return _checked(parse(text, path))


def restored(written: Mapping[str, Any], origin: Path) -> JobSpec:
    """The job that `jobspec.written.written` gave.

    Whether its code is still there is not asked: who resumes a job to end it needs none.
    """
    return _spec(_parts(YamlFile(origin, dict(written), None)), Path("/"))


def _checked(file: YamlFile) -> JobSpec:
    if file.content is None:
        raise BadRequest(f"{file.path}:1: the file is empty; write a job (spotctl init makes a file to begin with)")
    parts, folder = _parts(file), file.path.parent.resolve()
    if found := problems(parts, _path(parts.workdir or ".", folder)):
        raise refusal(file, found)
    return _spec(parts, folder)


def _parts(file: YamlFile) -> JobFile:
    try:
        return JobFile.model_validate(file.content)
    except ValidationError as error:
        raise refusal(file, problems_of(error)) from None


def _spec(file: JobFile, folder: Path) -> JobSpec:
    return JobSpec(
        name=file.name,
        program=_program(file, folder),
        resources=_resources(file),
        workdir=_path(file.workdir or ".", folder),
        setup=file.setup,
        env=file.env or {},
        secrets=tuple(file.secrets or ()),
        data=_locations(file.data, folder),
        outputs=_locations(file.outputs, folder),
        image=_image(file),
        identity=_given(file.identity),
        objective=file.objective or Objective.MIN_COST,
        deadline=file.deadline,
        hours=file.hours,
        budget=file.budget,
        throughputs=file.throughputs or {},
        tags=file.tags or {},
        strategy=file.strategy or AUTO,
        webhook=file.notify.webhook if file.notify else None,
        local=LocalMarket(**_given(file.local)),
    )


def _program(file: JobFile, folder: Path) -> Training | Command:
    if file.kind is Kind.AGILEML:
        assert file.app is not None
        return Training(file.app, _stop(file.stop or StopPart()), file.args or {})
    assert file.run is not None
    return Command(file.run, file.nodes or 1, _checkpoint(file.checkpoint, folder) if file.checkpoint else None)


def _stop(part: StopPart) -> Stop:
    span = None if part.minutes is None else round(part.minutes * MINUTE)
    return Stop(part.clocks, span, part.loss, part.converged)


def _checkpoint(part: CheckpointPart, folder: Path) -> Checkpoint:
    return Checkpoint(_location(part.path, folder), part.every)


def _resources(file: JobFile) -> Resources:
    part, nodes = file.resources, file.nodes or 1
    transient = part.machines if file.kind is Kind.AGILEML else Range(nodes, nodes)
    assert transient is not None
    fewest = 1 if file.kind is Kind.AGILEML else 0
    return Resources(
        clouds=tuple(part.clouds),
        machines=transient,
        reliable=Reliable(**{"machines": fewest} | _given(part.reliable)),
        types=tuple(part.types) if isinstance(part.types, list) else (),
        needs=Needs(**_given(part.types if isinstance(part.types, NeedsPart) else None)),
        regions=tuple(dict.fromkeys(_region(part.clouds, region) for region in part.regions or ())),
    )


def _region(clouds: Sequence[str], region: str) -> str:
    """In the spelling of the cloud whose it is."""
    if clouds == ["local"]:
        return region
    return next(api_region(cloud, region) for cloud in clouds if is_region_of(cloud, region))


def _image(file: JobFile) -> Image:
    given = _given(file.image)
    if given.get("ami") == AUTO:
        del given["ami"]
    return Image(**given)


def _locations(named: Mapping[str, str] | None, folder: Path) -> dict[str, str]:
    return {name: _location(written, folder) for name, written in (named or {}).items()}


def _location(written: str, folder: Path) -> str:
    if written.startswith(_FILE):
        return str(Path(unquote(written.removeprefix(_FILE))).resolve())
    return written if _HAS_SCHEME.match(written) else str(_path(written, folder))


def _path(written: str, folder: Path) -> Path:
    path = Path(written)
    return (path.expanduser() if written.startswith("~/") else folder / path).resolve()


def _given(part: BaseModel | None) -> dict[str, Any]:
    """What a part says, without what it leaves open."""
    return {} if part is None else {name: value for name, value in part if value is not None}
