"""What a job file may not say although each of its parts is well written: that some of them do not fit each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from pricing_data.market import is_region_of
from spotctl.files.job.app import app_problem, arguments_problem
from spotctl.files.job.errors import Problem, missing
from spotctl.files.job.parts import ONLY_AGILEML, ONLY_COMMAND, JobFile
from spotctl.files.job.spec import Kind, Objective, data_variable, output_variable

_LOCAL = "local"


def problems(file: JobFile, workdir: Path) -> list[Problem]:
    """Everything that does not fit."""
    return [problem for check in _CHECKS for problem in check(file)] + list(_of_code(file, workdir))


def _of_kind(file: JobFile) -> Iterator[Problem]:
    needed, foreign = (("app", "stop"), ONLY_COMMAND) if file.kind is Kind.AGILEML else (("run",), ONLY_AGILEML)
    for key in foreign:
        if getattr(file, key) is not None:
            yield Problem((key,), f"does not go with kind: {file.kind}; leave it out, or change kind")
    for key in needed:
        if getattr(file, key) is None:
            yield missing(key)
    if file.stop is not None and not file.stop.model_dump(exclude_none=True):
        yield Problem(("stop",), "says nothing; allowed are clocks, minutes, loss, converged, or several of them")


def _of_objective(file: JobFile) -> Iterator[Problem]:
    if file.objective is Objective.MIN_COST_SLO and file.deadline is None:
        yield Problem(("objective",), "min-cost-slo without a deadline; write deadline: 10h, or objective: min-cost")
    if file.objective is Objective.MAKESPAN_WITHIN_BUDGET and file.budget is None:
        yield Problem(
            ("objective",),
            "makespan-within-budget without a budget; write budget: 25 USD, or objective: max-throughput",
        )


def _of_clouds(file: JobFile) -> Iterator[Problem]:
    clouds = file.resources.clouds
    yield from _twice(clouds, ("resources", "clouds"))
    if _LOCAL in clouds and len(set(clouds)) > 1:
        said = "local stands beside real clouds; allowed are [local], or any of aws, gcp, azure"
        yield Problem(("resources", "clouds"), said)
    if file.local is not None and _LOCAL not in clouds:
        yield Problem(("local",), f"goes with clouds: [local], not [{', '.join(clouds)}]; leave it out")
    for cloud in file.identity.model_fields_set if file.identity else ():
        if cloud not in clouds:
            yield Problem(("identity", cloud), f"is none of resources.clouds; allowed are {', '.join(clouds)}")


def _of_regions(file: JobFile) -> Iterator[Problem]:
    clouds, regions = file.resources.clouds, file.resources.regions
    if regions is None or _LOCAL in clouds:
        return
    yield from _twice(regions, ("resources", "regions"))
    strange = [i for i, region in enumerate(regions) if not any(is_region_of(cloud, region) for cloud in clouds)]
    for i in strange:
        said = f"{regions[i]!r} is no region of {' or '.join(clouds)}; allowed are their own"
        yield Problem(("resources", "regions", i), said)
    if strange:
        return
    for i, cloud in enumerate(clouds):
        if not any(is_region_of(cloud, region) for region in regions):
            said = f"{cloud} has none of the regions; allowed are clouds with a region there"
            yield Problem(("resources", "clouds", i), said)


def _of_machines(file: JobFile) -> Iterator[Problem]:
    machines, reliable, loc = file.resources.machines, file.resources.reliable, ("resources", "machines")
    if file.kind is Kind.AGILEML:
        if machines is None:
            yield missing(*loc)
        if reliable is not None and reliable.machines == 0:
            yield Problem(
                ("resources", "reliable", "machines"),
                "0 are none; allowed is a number from 1, because they keep the model when all others are taken",
            )
    elif machines is not None and (machines.least, machines.most) != (nodes := file.nodes or 1, nodes):
        yield Problem(loc, f"{machines} is not its nodes; allowed is {nodes}, or leave it out")
    if machines is not None and machines.most == 0:
        yield Problem(loc, f"{machines} is none at all; allowed is a range such as 4..64")


def _of_throughputs(file: JobFile) -> Iterator[Problem]:
    types = file.resources.types
    if not isinstance(types, list):
        return
    yield from _twice(types, ("resources", "types"))
    for name in file.throughputs or ():
        if not any(fnmatchcase(name, glob) for glob in types):
            yield Problem(("throughputs", name), f"is none of resources.types; allowed are {', '.join(types)}")


def _of_variables(file: JobFile) -> Iterator[Problem]:
    yield from _twice(file.secrets or [], ("secrets",))
    for i, name in enumerate(file.secrets or ()):
        if name in (file.env or {}):
            yield Problem(("secrets", i), f"{name} stands in env, too; allowed is one of them")
    yield from _of_names(file, "data", file.data or (), data_variable)
    if file.kind is Kind.COMMAND:
        yield from _of_names(file, "outputs", file.outputs or (), output_variable)


def _of_names(file: JobFile, key: str, names: Iterable[str], variable_of: Callable[[str], str]) -> Iterator[Problem]:
    """Names that become variables."""
    variables: dict[str, str] = {}
    for name in names:
        variable = variable_of(name)
        if variable in variables:
            yield Problem((key, name), f"is ${variable} like {variables[variable]}; allowed is another name")
        if variable in {*(file.env or ()), *(file.secrets or ())}:
            yield Problem((key, name), f"is ${variable}, which env or secrets set; allowed is another name")
        variables[variable] = name


def _of_code(file: JobFile, workdir: Path) -> Iterator[Problem]:
    if not workdir.is_dir():
        yield Problem(("workdir",), f"there is no folder {workdir}; allowed is one that is there, seen from the file")
    elif file.app is not None:
        if wrong := app_problem(file.app, workdir, file.setup is not None):
            yield Problem(("app",), wrong)
        elif wrong := arguments_problem(file.app, file.args or {}):
            yield Problem(("args",) if file.args else ("app",), wrong)


def _twice(names: list[str], loc: tuple[str, ...]) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            again = len(names) - 1 - names[::-1].index(name)
            yield Problem((*loc, again), f"{name!r} stands there {count} times; allowed is once")


_CHECKS: tuple[Callable[[JobFile], Iterator[Problem]], ...] = (
    _of_kind,
    _of_objective,
    _of_clouds,
    _of_regions,
    _of_machines,
    _of_throughputs,
    _of_variables,
)
