"""Mistakes that no single key shows: keys that contradict each other, and code that is not
there."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from bidbrain.strategies.names import DEADLINE, IN_PLACE_OF, REGIONS
from pricing_data.market import is_region_of, similar
from spotctl.files.job.code_checks import (
    app_problem,
    arguments_problem,
    model_problem,
    script_problem,
    syntax_problem,
)
from spotctl.files.job.conversions import AUTO
from spotctl.files.job.data_places import problems_of_buckets, reach_problems
from spotctl.files.job.forms import ANY
from spotctl.files.job.messaging import secrets_of, service_at
from spotctl.files.job.programs import Command, Parallel, Stop, Training
from spotctl.files.job.resources import Image, Resources, problem_of
from spotctl.files.job.sections import Given, fields_of, missing
from spotctl.files.job.spec import JobSpec, Objective, data_variable, output_variable
from spotctl.files.job.values import CLOSE
from spotctl.files.yaml_file import Problem
from spotctl.home.cloud import mapped_ports, rented_clouds
from spotctl.home.errors import BadRequest

_LOCAL = "local"


def problems(spec: JobSpec, given: Given) -> list[Problem]:
    """Everything that does not fit; `given` is what the file itself says, without defaults."""
    mistakes = [*_of_engine(spec, given), *_of_clouds(spec, given), *_of_machines(spec, given)]
    return mistakes + [problem for check in _CHECKS for problem in check(spec)]


def code_problems(spec: JobSpec) -> list[Problem]:
    """Mistakes in the job's folder and its trainer, found without running the user's code."""
    program, folder = spec.program, spec.workdir
    if not folder.is_dir():
        message = f"there is no folder {folder}; expected a path relative to the job file"
        return [Problem(("workdir",), message)]

    split = program.parallel
    if split is not None and not (folder / split.profile).is_file():
        message = (
            f"there is no file {split.profile!r} in {folder}; write it with spotctl lab "
            f"parallel profile MODEL --out {split.profile}"
        )
        profile = ("parallel",) if program.parallel_auto else ("parallel", "profile")
        return [Problem(profile, message)]
    if not isinstance(program, Training):
        return []
    if split is not None:
        mistakes, plain = list[Problem](), Training(program.app, program.stop)
        extra = _differing(program, plain, ("args", "stragglers", "wire"))
        if extra:
            message = "is for trainers, and with parallel app is a model; remove it"
            mistakes.append(Problem((extra[0],), message))
        elif unfit := model_problem(program.app, folder):
            mistakes.append(Problem(("app",), unfit))

        unused = _differing(split, Parallel(), _UNUSED)
        mistakes += [Problem(("parallel", name), _UNUSED[name]) for name in unused]
        return mistakes

    place = ("trainer", *program.trainer) if program.trainer else ("app",)
    if wrong := app_problem(program.app, folder, spec.setup is not None):
        return [Problem(place, wrong)]

    wrong = arguments_problem(program.app, program.args)
    return [Problem(("args",) if program.args else place, wrong)] if wrong else []


def launch_problems(spec: JobSpec) -> list[Problem]:
    """Mistakes about files and places that a job needs on its machines; a plan does without
    them."""
    program, mistakes = spec.program, list(reach_problems(spec))
    # A setup may make the script.
    if (
        isinstance(program, Command)
        and spec.setup is None
        and (wrong := script_problem(program.run, spec.workdir))
    ):
        mistakes.append(Problem(("run",), wrong))

    for i, name in enumerate(spec.notify.to):
        # A variable that is not set is reported with the first message, as that of a webhook is.
        if name.startswith("$") and (address := os.environ.get(name[1:])):
            try:
                service_at(address)
            except BadRequest as error:
                mistakes.append(Problem(("notify", "to", i), f"{name}: {error}"))

    return mistakes


_UNUSED = {
    "device": "is not cpu, and the nodes of a training compute on processors; write cpu, or remove it",
    "updates": "is for commands; write stop: {clocks: 500}",
    "replicas": "is for commands; the nodes of a training choose the number of pipelines as machines come and go",
    "allow_delay": "is for scheme: auto of a command; write scheme: 2bw",
}
"""Settings that the nodes of a training would not follow, and what to do instead."""


def _of_program(spec: JobSpec) -> Iterator[Problem]:
    program = spec.program
    if isinstance(program, Training):
        made, backups = program.trainer, program.stragglers.backup_workers
        if len(made) > 1:
            yield Problem(("trainer",), f"names {' and '.join(made)}; expected one of them")
        elif made and program.app not in made.values():
            yield Problem(("app",), "is made by trainer; remove one of them")
        if made and program.parallel is not None:
            message = "is not for parallel, which splits a model; remove one of them"
            yield Problem(("trainer",), message)

        if program.stop == Stop() and not made:
            yield Problem(
                ("stop",), "is empty; expected clocks, minutes, loss, converged, or several of them"
            )
        if backups is not False and backups != AUTO:
            message = f"{backups} is no choice any more; write auto"
            yield Problem(
                ("stragglers", "backup_workers"),
                f"{message}: clocks end without workers only while that pays",
            )

    if isinstance(program, Command) and (wrong := syntax_problem(program.run)):
        yield Problem(("run",), wrong)
    if spec.setup is not None and (wrong := syntax_problem(spec.setup)):
        yield Problem(("setup",), wrong)


def _of_strategy(spec: JobSpec) -> Iterator[Problem]:
    if spec.objective is Objective.MIN_COST_SLO and spec.deadline is None:
        yield Problem(
            ("objective",),
            "min-cost-slo without a deadline; write deadline: 10h, or objective: min-cost",
        )

    if spec.objective is Objective.MAKESPAN_WITHIN_BUDGET and spec.budget is None:
        yield Problem(
            ("objective",),
            "makespan-within-budget without a budget; write budget: 25 USD, or objective: "
            "max-throughput",
        )

    kind = spec.strategy.partition(":")[0]
    if (better := IN_PLACE_OF.get(kind)) is not None:
        message = (
            f"{kind} is no choice for a job any more: others cost less; write strategy: {better}"
        )
        yield Problem(("strategy",), message)

    if kind == DEADLINE and spec.deadline is None:
        yield Problem(
            ("strategy",), "deadline needs a deadline; write deadline: 10h, or strategy: auto"
        )

    is_used = kind == "price-capacity" or spec.strategy in (AUTO, DEADLINE, "lookahead")
    if spec.value_of_time is not None and not is_used:
        message = (
            f"is not used by strategy {spec.strategy}; expected auto, lookahead or price-capacity"
        )
        yield Problem(("value_of_time",), message)


_PLACES = {
    "clouds": "clouds",
    "types": "types",
    "needs": "types",
    "regions": "regions",
    "zones": "zones",
}
"""Keys of resources that choose machines to rent, by field."""
_PURCHASES = (
    "objective", "deadline", "hours", "budget", "value_of_time", "max_bid", "throughputs", "image", "identity",
    "strategy", "local",
)  # fmt: skip
_MADE_ON_MACHINES = ("setup", "env", "secrets", "data", "data_buckets")


def _of_engine(spec: JobSpec, given: Given) -> Iterator[Problem]:
    if given.get("engine") is None:
        if isinstance(spec.program, Training) and spec.program.address is not None:
            yield Problem(("address",), "is that of a Ray cluster; write engine: ray, or remove it")
        if "clouds" not in given["resources"]:
            yield missing(("resources", "clouds"), fields_of(Resources)["clouds"])
        return

    resources, machines = spec.resources, spec.resources.machines
    plain, nowhere = JobSpec(spec.name, spec.program, resources), Resources()
    rented = [(name,) for name in _differing(spec, plain, _PURCHASES)]
    places = [("resources", _PLACES[name]) for name in _differing(resources, nowhere, _PLACES)]
    price = [("resources", "reliable", "type")] if resources.reliable.type is not None else []
    for loc in (*rented, *places, *price):
        yield Problem(loc, "is about machines to rent, and engine: ray rents none; remove it")
    for name in _MADE_ON_MACHINES:
        if getattr(spec, name):
            message = (
                "does not reach the machines of a Ray cluster; provide it there, and remove it"
            )
            yield Problem((name,), message)

    if "machines" in given["resources"] and machines.least != machines.most:
        message = (
            f"{machines} is a range; with engine: ray, write how many transient nodes to start, "
            "such as 3"
        )
        yield Problem(("resources", "machines"), message)


def _differing(given: object, plain: object, names: Iterable[str]) -> list[str]:
    """The keys of a section that say something else than they do in a plain one."""
    return [name for name in names if getattr(given, name) != getattr(plain, name)]


def _of_clouds(spec: JobSpec, given: Given) -> Iterator[Problem]:
    clouds = spec.resources.clouds
    if not clouds:
        return

    yield from _repeated(clouds, ("resources", "clouds"))
    if _LOCAL in clouds and len(set(clouds)) > 1:
        message = (
            "local cannot be combined with real clouds; expected [local], or any of "
            f"{', '.join(rented_clouds())}"
        )
        yield Problem(("resources", "clouds"), message)

    if "local" in given and _LOCAL not in clouds:
        yield Problem(("local",), f"is for clouds: [local], not [{', '.join(clouds)}]; remove it")
    rented = set()
    if _LOCAL in clouds:
        rented = {name for name in ("image", "identity") if given.get(name)}
    if replace(spec.image, container=None, login=None) == Image():
        rented -= {"image"}
    for name in sorted(rented):
        yield Problem((name,), "applies to cloud machines, not to the local market; remove it")

    for cloud in spec.identity:
        if cloud not in clouds and _LOCAL not in clouds:
            yield Problem(
                ("identity", cloud), f"is not one of clouds: [{', '.join(clouds)}]; remove it"
            )


def _of_container(spec: JobSpec) -> Iterator[Problem]:
    image, loc = spec.image, ("image", "container")
    if image.container and spec.is_local and isinstance(spec.program, Training):
        yield Problem(
            loc, "is for commands and for trainings on clouds; on the local market, remove it"
        )

    if image.login and not image.container:
        yield Problem(
            ("image", "login"), "is for the registry of a container; add container, or remove it"
        )

    if image.login and image.login not in spec.secrets:
        yield Problem(
            ("image", "login"),
            f"{image.login} is not one of secrets; write secrets: [{image.login}], too",
        )


def _of_regions(spec: JobSpec) -> Iterator[Problem]:
    clouds, regions = spec.resources.clouds, spec.resources.regions
    if not regions or _LOCAL in clouds or regions == (ANY,):
        return

    yield from _repeated(regions, ("resources", "regions"))
    strange = [
        i
        for i, region in enumerate(regions)
        if not any(is_region_of(cloud, region) for cloud in clouds)
    ]

    for i in strange:
        near = similar(regions[i], clouds)
        cure = f"did you mean {near}?" if near else "expected one of theirs"
        message = f"{regions[i]!r} is not a region of {' or '.join(clouds)}; {cure}"
        yield Problem(("resources", "regions", i), message)

    if strange:
        return
    for i, cloud in enumerate(clouds):
        if not any(is_region_of(cloud, region) for region in regions):
            yield Problem(
                ("resources", "clouds", i),
                f"{cloud} has none of the regions; remove it, or add one of its",
            )


def _of_moves(spec: JobSpec) -> Iterator[Problem]:
    for name, places in (("regions", spec.resources.regions), ("zones", spec.resources.zones)):
        if ANY in places and places != (ANY,):
            yield Problem(("resources", name), f"any stands alone; write {name}: any, or name them")

    if spec.strategy != REGIONS:
        return

    program = spec.program
    if not isinstance(program, Command) or program.checkpoint is None:
        yield Problem(
            ("strategy",),
            "regions moves a command with its checkpoint; add one, or write strategy: auto",
        )
    elif spec.deadline is None:
        yield Problem(
            ("strategy",), "regions needs a deadline; write deadline: 10h, or strategy: auto"
        )


def _of_machines(spec: JobSpec, given: Given) -> Iterator[Problem]:
    machines, loc = given["resources"].get("machines"), ("resources", "machines")
    if isinstance(spec.program, Training):
        if machines is None:
            yield missing(loc, fields_of(Resources)["machines"])
        if spec.on_ray and not spec.resources.reliable.machines and spec.program.parallel is None:
            message = (
                "is 0 or auto; expected at least 1 with engine: ray, where reliable nodes keep the "
                "model"
            )
            yield Problem(("resources", "reliable", "machines"), message)
    elif spec.resources.reliable.machines is None:
        message = (
            "is auto, which is for kind: agileml; write the number that the command needs, or "
            "leave it out"
        )
        yield Problem(("resources", "reliable", "machines"), message)
    elif machines is not None and machines != spec.resources.machines:
        nodes = spec.program.nodes
        yield Problem(loc, f"{machines} contradicts nodes: {nodes}; write {nodes}, or leave it out")

    if machines is not None and machines.most == 0:
        yield Problem(loc, f"{machines} allows no machine; expected a range such as 4..64")


def _of_nodes(spec: JobSpec) -> Iterator[Problem]:
    program, loc = spec.program, ("nodes",)
    if isinstance(program, Command) and program.nodes.least < program.nodes.most:
        nodes = program.nodes
        if program.checkpoint is None:
            message = (
                f"{nodes} needs a checkpoint, from which the command starts again when the number "
                "changes; add one"
            )
            yield Problem(loc, f"{message}, or write {nodes.most}")
        if program.parallel is not None:
            yield Problem(
                loc,
                f"{nodes} is a range, and parallel splits a model for one number; write "
                f"{nodes.most}",
            )

    place, close = ("resources", "placement"), spec.resources.placement == CLOSE
    if close and (not isinstance(program, Command) or program.nodes.most < 2):
        yield Problem(
            place, "is for a command with several nodes; remove it, or write nodes: 2, for example"
        )
    elif close and _LOCAL in spec.resources.clouds:
        yield Problem(place, "applies to cloud machines, not to the local market; remove it")


def _of_mapped_ports(spec: JobSpec) -> Iterator[Problem]:
    """Refuses commands whose nodes choose their ports, and those with a machine for the runner."""
    mapped = [cloud for cloud in spec.resources.clouds if cloud != _LOCAL and mapped_ports(cloud)]
    if not mapped or not isinstance(spec.program, Command):
        return

    cloud = mapped[0]
    nodes, reliable = spec.program.nodes, spec.resources.reliable.machines
    at = ("resources", "clouds", spec.resources.clouds.index(cloud))
    if nodes.most > 1:
        message = (
            f"machines of {cloud} reach each other at one port, and the nodes of a command use "
            "others, too"
        )
        yield Problem(
            at, f"{message}; remove {cloud}, or run the command on one node, or a training"
        )
    elif reliable:
        message = (
            f"machines of {cloud} cannot rent others, as the runner on a reliable machine does"
        )
        yield Problem(at, f"{message}; remove {cloud}, or reliable: {{machines: {reliable}}}")


def _of_reservations(spec: JobSpec) -> Iterator[Problem]:
    named, clouds, types = spec.resources.reservations, spec.resources.clouds, spec.resources.types
    for i, reservation in enumerate(named):
        loc, market = ("resources", "reservations", i), reservation.market
        if problem := problem_of(reservation):
            yield Problem(loc, problem)
            continue
        if market.cloud not in clouds:
            yield Problem(
                loc,
                f"is of {market.cloud}, which is not one of clouds: [{', '.join(clouds)}]; add it "
                "there",
            )
        if types and not any(fnmatchcase(market.instance_type, glob) for glob in types):
            yield Problem(
                loc, f"has the type {market.instance_type}, which types does not name; add it there"
            )
        if (market.cloud, market.region) != (named[0].market.cloud, named[0].market.region):
            message = (
                f"is in {market.region}, the first one in {named[0].market.region}; name those of "
                "one region"
            )
            yield Problem(loc, message)
        if any(other.name == reservation.name for other in named[:i]):
            yield Problem(loc, f"{reservation.name} is listed twice; keep one")
        if spec.resources.placement == CLOSE and not reservation.used.close:
            message = (
                f"{market.cloud} places no reserved machines close together; remove it, or "
                "placement: close"
            )
            yield Problem(loc, message)

    if named and spec.on_ray:
        yield Problem(
            ("resources", "reservations"),
            "are for machines that spotctl rents, not for engine: ray",
        )

    if named and spec.strategy == REGIONS:
        yield Problem(
            ("strategy",),
            "regions moves between regions, and reservations are in one; write strategy: auto",
        )


def _of_throughputs(spec: JobSpec) -> Iterator[Problem]:
    types = spec.resources.types
    yield from _repeated(types, ("resources", "types"))
    for name in spec.throughputs if types else ():
        if not any(fnmatchcase(name, glob) for glob in types):
            yield Problem(
                ("throughputs", name),
                f"matches none of resources.types: {', '.join(types)}; correct one",
            )


def _of_variables(spec: JobSpec) -> Iterator[Problem]:
    yield from _repeated(spec.secrets, ("secrets",))
    for name, value in spec.env.items():
        if "\0" in value:
            yield Problem(
                ("env", name), "contains a NUL byte, which no environment variable can; remove it"
            )

    for i, name in enumerate(spec.secrets):
        if name in _OF_MACHINES:
            yield Problem(
                ("secrets", i), f"{name} is set by each machine; remove it, or choose another name"
            )
        if name in spec.env:
            yield Problem(("secrets", i), f"{name} is also in env; keep one of them")

    yield from _of_names(spec, "data", spec.data, data_variable)
    if isinstance(spec.program, Command):
        yield from _of_names(spec, "outputs", spec.outputs, output_variable)
        return

    for name in spec.outputs:
        if name != "model":
            yield Problem(
                ("outputs", name), "is never written: an agileml job writes model only; remove it"
            )


def _of_services(spec: JobSpec) -> Iterator[Problem]:
    for i, address in enumerate(spec.notify.to):
        if address.startswith("$"):
            continue
        try:
            if secrets_of(service_at(address)):
                # The event log keeps what the file says.
                cure = "put it into an environment variable, and write $NAME here"
                yield Problem(
                    ("notify", "to", i),
                    f"the {address.partition(':')[0]}:// address holds a secret; {cure}",
                )
        except BadRequest as error:
            yield Problem(("notify", "to", i), str(error))


_OF_MACHINES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LANG", "TERM")


def _of_names(
    spec: JobSpec, key: str, names: Iterable[str], variable_of: Callable[[str], str]
) -> Iterator[Problem]:
    """Names that become environment variables."""
    variables: dict[str, str] = {}
    for name in names:
        variable = variable_of(name)
        if variable in variables:
            yield Problem(
                (key, name), f"sets ${variable}, as {variables[variable]} does; choose another name"
            )
        if variable in {*spec.env, *spec.secrets}:
            yield Problem(
                (key, name), f"sets ${variable}, as env or secrets do; choose another name"
            )
        variables[variable] = name


def _repeated(names: Sequence[str], loc: tuple[str, ...]) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            again = len(names) - 1 - names[::-1].index(name)
            yield Problem((*loc, again), f"{name!r} is listed {count} times; keep one")


_CHECKS: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (
    _of_strategy,
    _of_container,
    _of_regions,
    problems_of_buckets,
    _of_moves,
    _of_nodes,
    _of_mapped_ports,
    _of_reservations,
    _of_throughputs,
    _of_program,
    _of_variables,
    _of_services,
)
