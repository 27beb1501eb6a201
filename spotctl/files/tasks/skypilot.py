"""A task of SkyPilot: its resources as SkyPilot 0.14 reads them, and the job that they give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from spotctl.files.tasks.draft import JobDraft, own_path
from spotctl.files.yaml_file import Loc, YamlFile
from spotctl.home.cloud import rented_clouds

_UNITS = {"kb": 2**-20, "mb": 2**-10, "gb": 1, "tb": 2**10, "pb": 2**20}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?) ?([kmgtp][bi])?", re.IGNORECASE)
_BY_MEMORY = re.compile(r"(\d+)GB(\+?)", re.IGNORECASE)
_VARIABLES = {
    "SKYPILOT_NODE_RANK": "$SPOTCTL_NODE_RANK",
    "SKYPILOT_NUM_NODES": "$SPOTCTL_NODES",
    "SKYPILOT_NODE_IPS": "$(echo $SPOTCTL_NODE_ADDRESSES | tr , '\\n')",
    "SKYPILOT_NUM_GPUS_PER_NODE": "$SPOTCTL_NPROC_PER_NODE",
    "SKYPILOT_TASK_ID": "$SPOTCTL_RUN",
}
_WITHOUT_COUNTERPART = {
    "service": "a service that answers requests; spotctl runs trainings",
    "pool": "a pool of machines; spotctl rents machines for each job",
    "event_callback": "notify: {webhook: URL} tells how a run ended",
    "inputs": "the optimizer's sizes of data are not read; data copies are planned by their real size",
    "outputs": "the optimizer's sizes of data are not read",
    "volumes": "machines have a disk of their own; use data, outputs and checkpoint in a bucket",
    "volume_mounts": "machines have a disk of their own; use data, outputs and checkpoint in a bucket",
    "managed_secrets": "export them where you launch, and name them in secrets",
    "config": "settings of SkyPilot",
    "experimental": "settings of SkyPilot",
    "api_server_access": "there is no API server",
    "_metadata": "is set by SkyPilot",
    "execution": "tasks of a pipeline run one after the other",
    "file_mounts_mapping": "is set by SkyPilot",
}
_OF_MACHINES = {
    "autostop": "machines are returned when the job ends",
    "ports": "no port is opened to the internet; spotctl ssh forwards one",
    "disk_tier": "disks have the cloud's usual type",
    "network_tier": "placement: close puts the nodes of a job next to each other",
    "local_disk": "choose types with local disks by name, in types",
    "ephemeral_storage": "use disk_size",
    "volumes": "machines have a disk of their own; use data, outputs and checkpoint in a bucket",
    "accelerator_args": "is for TPUs, which spotctl does not rent",
    "job_recovery": "an evicted job always continues; retries says how often a command that failed is tried again",
    "spot_recovery": "an evicted job always continues",
    "priority": "queue: {weight: 2} weighs a job against others",
    "priority_class": "queue: {weight: 2} weighs a job against others",
    "_docker_login_config": "image: {login: NAME} names a variable with USER:PASSWORD",
    **dict.fromkeys(
        (
            "_no_missing_accel_warnings",
            "_is_image_managed",
            "_requires_fuse",
            "_cluster_config_overrides",
        ),
        "is set by SkyPilot",
    ),
}
_PLACE = ("cloud", "region", "zone")
_CARRIED: tuple[str, ...] = (
    *_PLACE,
    "infra",
    "instance_type",
    "accelerators",
    "cpus",
    "memory",
    "use_spot",
    "disk_size",
)
_CARRIED += ("image_id", "max_hourly_cost", "any_of", "ordered", "gpus", "labels")
_TASK = (
    "name",
    "workdir",
    "setup",
    "run",
    "num_nodes",
    "envs",
    "secrets",
    "file_mounts",
    "resources",
)


def skypilot_draft(file: YamlFile, folder: Path) -> JobDraft:
    """The job of a task; paths are given below `folder`. BadRequest: the file is no task of
    SkyPilot.
    """
    draft = JobDraft("SkyPilot", file, _VARIABLES)
    task = draft.mapping((), file.content)
    for key in task.keys() & {"service", "pool"}:
        draft.refuse((key,), f"{_WITHOUT_COUNTERPART[key]}; give init a task")
    draft.leave_unknown((), task, _TASK, _WITHOUT_COUNTERPART)
    draft.set_nodes(("num_nodes",), task.get("num_nodes"))
    _set_resources(draft, task)

    envs = draft.mapping(("envs",), task.get("envs"))
    texts = draft.file.texts("envs")
    for name, value in envs.items():
        draft.set_variable(("envs", name), name, None if value is None else texts.get(name, value))
    secrets = task.get("secrets")
    if isinstance(secrets, list):
        names: Iterable[str] = map(str, secrets)
    else:
        names = draft.mapping(("secrets",), secrets)

    for i, name in enumerate(names):
        place = ("secrets", i if isinstance(secrets, list) else name)
        plain = name.removeprefix("secrets:").rpartition("/")[2]
        draft.set_variable(place, plain, None)
        if isinstance(secrets, dict) and secrets[name] is not None:
            draft.leave(
                place,
                f"its value is not copied: export {plain} where you launch the job",
            )

    workdir = task.get("workdir")
    if isinstance(workdir, str):
        draft.options["workdir"] = own_path(workdir, folder)
    elif workdir is not None:
        why = "a repository is not fetched; clone it, and name its folder in workdir"
        draft.leave(("workdir",), why)
    _set_mounts(draft, task, folder)
    if not isinstance(task.get("setup"), str | None) or not isinstance(task.get("run"), str):
        draft.refuse(("run",), "expected commands as text in run, and in setup if it is there")
    draft.set_commands(task.get("setup") or "", task["run"])

    return draft


def _set_mounts(draft: JobDraft, task: dict[str, Any], folder: Path) -> None:
    mounts = draft.mapping(("file_mounts",), task.get("file_mounts"))
    known = {**draft.env}

    def filled(text: str) -> str:
        return re.sub(
            r"\$\{(\w+)\}|\$(\w+)", lambda named: known.get(named[1] or named[2], named[0]), text
        )

    for path, source in mounts.items():
        loc: Loc = ("file_mounts", path)
        if isinstance(source, str):
            place = filled(source)
            is_local = "://" not in place
            draft.mount(
                loc, filled(path), own_path(place, folder) if is_local else place, is_written=False
            )
            continue
        storage = draft.mapping(loc, source)
        mode = str(storage.get("mode", "MOUNT")).upper()
        kept, store = storage.get("source"), str(storage.get("store", "s3")).lower()
        if isinstance(kept, str) and "://" in kept:
            draft.mount(loc, filled(path), filled(kept), is_written=mode != "COPY")
            continue
        scheme = {"s3": "s3", "gcs": "gs"}.get(store)
        name = filled(storage["name"]) if isinstance(storage.get("name"), str) else ""
        if unknown := re.search(r"\$\{?(\w+)", name):
            draft.leave(
                loc,
                f"names its bucket by ${unknown[1]}, which has no value in the file; write the "
                "name",
            )
        elif kept is None and name and scheme:
            draft.mount(loc, filled(path), f"{scheme}://{name}/", is_written=mode != "COPY")
        else:
            draft.leave(
                loc,
                "a bucket that is made, or of a store that spotctl does not read; name an existing "
                "one",
            )


def _set_resources(draft: JobDraft, task: dict[str, Any]) -> None:
    loc: Loc = ("resources",)
    resources = draft.mapping(loc, task.get("resources"))
    lists = ("any_of", "ordered", "accelerators", "gpus")
    where = (*loc, next((key for key in lists if key in resources), "accelerators"))
    every = _alternatives(draft, resources)
    first = every[0]
    machines = [machine for machine in every if _besides(machine) == _besides(first)]
    if others := [machine for machine in every if machine not in machines]:
        draft.leave(
            where,
            "alternatives of a job differ in GPUs and places only: "
            f"{_said(first)} was taken, and not {'; '.join(map(_said, others))}",
        )
    named = {tuple(str(each.get(key) or "") for key in _PLACE) for each in machines}
    if len(machines) > 1 and ("ordered" in resources or len(named) > 1):
        draft.leave(
            where,
            "any of these GPUs in any of these places: the least expensive is rented, not the first",
        )

    places = {key: [machine[key] for machine in machines if machine.get(key)] for key in _PLACE}
    holders = ("infra", "region", "cloud", "any_of", "ordered")
    place = (*loc, next((key for key in holders if key in resources), "cloud"))
    draft.set_clouds(places["cloud"], places["region"], places["zone"], place)

    _set_machine(draft, machines, loc)
    is_spot, is_written = (any(each[key] for each in machines) for key in ("use_spot", "says_spot"))
    draft.set_spot((*loc, "use_spot"), is_spot=is_spot, is_written=is_written)
    draft.image |= first.get("image") or {}
    if size := first.get("disk_size"):
        if not size.isdigit():
            draft.refuse((*loc, "disk_size"), "expected a whole number of GB")
        draft.image["disk_gib"] = int(size)
    draft.set_max_price((*loc, "max_hourly_cost"), first.get("max_hourly_cost"))
    draft.set_tags((*loc, "labels"), draft.mapping((*loc, "labels"), first.get("labels")))


def _besides(machine: dict[str, Any]) -> dict[str, Any]:
    """The parts that alternatives of a job have in common: all but GPUs, the name of a type, whether
    they are spot machines, and places, of which all name a region or none does.
    """
    apart = ("accelerators", "instance_type", "use_spot", "says_spot", *_PLACE)
    named = {key: bool(machine.get(key)) for key in ("accelerators", "instance_type", "region")}
    given = {key: part for key, part in machine.items() if key not in apart and part is not None}
    return given | named


def _said(machine: dict[str, Any]) -> str:
    """An alternative, shortly: a100:8 on gcp."""
    words = [str(machine.get("accelerators") or machine.get("instance_type") or "CPUs")]
    place = "/".join(str(machine[key]) for key in _PLACE if machine.get(key))
    return " on ".join([*words, place] if place else words)


def _set_machine(draft: JobDraft, machines: Sequence[dict[str, Any]], loc: Loc) -> None:
    machine = machines[0]
    if machine.get("instance_type"):
        types = dict.fromkeys(each["instance_type"] for each in machines)
        draft.resources["types"] = [*types]
        for key in ("accelerators", "cpus", "memory"):
            if machine.get(key) is not None:
                draft.leave((*loc, key), f"follows from instance_type: {machine['instance_type']}")
        return

    if cpus := machine.get("cpus"):
        least = float(cpus.rstrip("+"))
        whole, more = ceil(least), ".." if cpus.endswith("+") else ""
        draft.machine["vcpus"] = f"{whole}{more}"
        if least != whole:
            draft.leave((*loc, "cpus"), f"vCPUs are whole: {whole} were written")

    if memory := machine.get("memory"):
        more = ".." if memory.endswith("+") else ""
        draft.machine["memory_gib"] = f"{float(memory.rstrip('+')):g}{more}"

    if machine.get("accelerators"):
        kinds = [*dict.fromkeys(each["accelerators"] for each in machines)]
        draft.machine["accelerators"] = kinds[0] if len(kinds) == 1 else kinds


# -- resources as SkyPilot's parser reads them -----------------------------------------------------


def _alternatives(draft: JobDraft, resources: dict[str, Any]) -> list[dict[str, Any]]:
    """Every machine that the resources allow, in their order, each with one kind of accelerator."""
    loc: Loc = ("resources",)
    draft.leave_unknown(loc, resources, _CARRIED, _OF_MACHINES)
    if resources.get("any_of") is not None and resources.get("ordered") is not None:
        draft.refuse(
            (*loc, "ordered"), "any_of is there too, and SkyPilot reads one of them; remove one"
        )

    key = "ordered" if resources.get("ordered") else "any_of"
    base = {name: value for name, value in resources.items() if name not in ("any_of", "ordered")}
    listed = resources.get(key)
    if listed is not None and not isinstance(listed, list):
        draft.refuse((*loc, key), "expected a list")

    machines = []
    for i, other in enumerate(listed or [{}]):
        place = (*loc, key, i)
        given = draft.mapping(place, other)
        draft.leave_unknown(place, given, _CARRIED, _OF_MACHINES)
        labels = draft.mapping((*loc, "labels"), base.get("labels"))
        more = draft.mapping((*loc, "labels"), given.get("labels"))
        merged = {**base, **given, "labels": {**labels, **more}}
        where = place if listed else loc
        for chosen in _accelerators(draft, merged, where):
            machine = _machine(draft, merged, chosen, where)
            machines.append(machine)

    return machines


def _accelerators(draft: JobDraft, given: dict[str, Any], loc: Loc) -> list[str | None]:
    """The kinds of GPUs that a machine may have, as a job file names them; None: it needs none."""
    key = "gpus" if given.get("gpus") is not None else "accelerators"
    if key == "gpus" and given.get("accelerators") is not None:
        draft.refuse(
            (*loc, "gpus"), "accelerators is there too, and SkyPilot reads one of them; remove one"
        )

    part = given.get(key)
    if part is None:
        return [None]

    names = [str(name) for name in part] if isinstance(part, list | dict) else [str(part)]
    if isinstance(part, dict):
        counts = ("" if count is None else f":{count}" for count in part.values())
        names = [name + count for name, count in zip(names, counts, strict=True)]

    kinds = dict[str | None, None]()
    for name in names:
        # MODEL:COUNT, or MEMORY:COUNT, perhaps behind the maker's name.
        model, colon, count = name.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9.]+", count):
            model, count = name, "1"
        if "tpu" in model.lower():
            draft.refuse_tpu((*loc, key), model)

        memory = _BY_MEMORY.fullmatch(model.rpartition(":")[2])
        kind = f"{memory[1]}GB{'..' if memory[2] else ''}" if memory else model
        number = float(count) if count.count(".") < 2 and count != "." else 0.0
        if (
            not memory and not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", model)
        ) or not 0 < number < 10**6:
            draft.refuse((*loc, key), f"{name!r} is not a model with a count above 0, as in A100:8")
        if number != int(number):
            draft.leave((*loc, key), f"{name} is a part of a GPU; whole ones are rented")
        kinds[f"{kind}:{ceil(number)}"] = None

    return [*kinds] or [None]


def _machine(
    draft: JobDraft, given: dict[str, Any], accelerators: str | None, loc: Loc
) -> dict[str, Any]:
    """One alternative, with values in the form that SkyPilot's parser gives them."""
    kept = ("instance_type", "labels", "max_hourly_cost")
    machine = {key: given[key] for key in kept if given.get(key) is not None}

    # The job names an image by itself, or of its one region.
    image = name = given.get("image_id")
    if isinstance(image, dict) and len(image) == 1:
        (name,) = image.values()
    if isinstance(name, str) and name.startswith("docker:"):
        machine["image"] = {"container": name.removeprefix("docker:")}
    elif isinstance(name, str) and name.startswith("ami-"):
        machine["image"] = {"ami": name}
    elif image is not None:
        draft.leave(
            (*loc, "image_id"), "an image by region or of SkyPilot; image names one for each cloud"
        )

    if not isinstance(given.get("instance_type"), str | None):
        draft.refuse((*loc, "instance_type"), "expected text")
    if not isinstance(given.get("use_spot"), bool | None):
        draft.refuse((*loc, "use_spot"), "expected true or false")

    machine |= _place(draft, given, loc)
    machine |= {"accelerators": accelerators, "use_spot": bool(given.get("use_spot"))}
    machine["says_spot"] = given.get("use_spot") is not None
    for key in ("cpus", "memory", "disk_size"):
        if given.get(key) is not None:
            machine[key] = _amount(draft, given[key], (*loc, key))

    if not re.fullmatch(r"\d*[a-z]*", str(given.get("disk_size") or ""), re.IGNORECASE):
        draft.refuse((*loc, "disk_size"), "expected a whole number, with its unit")
    return machine


def _place(draft: JobDraft, given: dict[str, Any], loc: Loc) -> dict[str, str]:
    """Cloud, region and zone, of clouds that are rented; of others the cloud alone."""
    for key in (*_PLACE, "infra"):
        if not isinstance(given.get(key), str | None):
            draft.refuse((*loc, key), "expected text")

    place = {key: given[key] for key in _PLACE if given.get(key) is not None}
    if given.get("infra"):
        parts = [part.strip() for part in given["infra"].strip().strip("/").split("/")]
        if place:
            draft.refuse((*loc, "infra"), "cloud, region or zone is there too; keep infra or them")
        if "" in parts or (
            len(parts) > len(_PLACE) and parts[0].lower() in (*rented_clouds(), "*")
        ):
            draft.refuse((*loc, "infra"), "expected cloud, cloud/region or cloud/region/zone")
        place = {key: part for key, part in zip(_PLACE, parts, strict=False) if part != "*"}

    cloud = place.get("cloud", "").lower()
    if cloud and cloud not in rented_clouds():
        return {"cloud": cloud}
    return place | ({"cloud": cloud} if cloud else {})


def _amount(draft: JobDraft, written: object, loc: Loc) -> str:
    """An amount such as 8, 8+, 32GB+ or 1TB, in GB where it is one of memory."""
    text = str(written)
    plain, plus = text.removesuffix("+"), "+" if text.endswith("+") else ""
    matched = None if isinstance(written, bool) else _MEMORY.fullmatch(plain)
    number, unit = (float(matched[1]), matched[2]) if matched else (0.0, "")
    if not number or (unit and loc[-1] == "cpus"):
        draft.refuse(loc, f"{text!r} is not a number above 0, with + behind it for at least")

    times = _UNITS[(unit or "gb").lower().replace("i", "b")]
    return f"{number * times:.12g}{plus}"
