"""A task of dstack (`.dstack.yml`, `type: task`), and the job that it gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spotctl.files.tasks.draft import JobDraft, own_path
from spotctl.files.yaml_file import Loc, YamlFile

_VARIABLES = {
    "DSTACK_NODE_RANK": "$SPOTCTL_NODE_RANK",
    "DSTACK_NODES_NUM": "$SPOTCTL_NODES",
    "DSTACK_NODES_IPS": "$(echo $SPOTCTL_NODE_ADDRESSES | tr , '\\n')",
    "DSTACK_MASTER_NODE_IP": "${SPOTCTL_NODE_ADDRESSES%%,*}",
    "DSTACK_GPUS_PER_NODE": "$SPOTCTL_NPROC_PER_NODE",
    "DSTACK_GPUS_NUM": "$((SPOTCTL_NPROC_PER_NODE * SPOTCTL_NODES))",
    "DSTACK_RUN_NAME": "$SPOTCTL_RUN",
}
_IN_GIB = {"MB": 2**-10, "GB": 1, "TB": 2**10}
_OF_TPUS, _VENDORS = ("google", "tpu"), ("amd", "tenstorrent", "intel")
_TPU = re.compile(r"tpu|v[2-6][a-z]*-\d", re.IGNORECASE)
_SIZE = r"\d+(?:\.\d+)?"
_WITHOUT_COUNTERPART = {
    "python": "machines have the image's Python; image: {container: python:3.12} names another",
    "nvcc": "name a container with the CUDA compiler in image: {container: ...}",
    "ports": "no port is opened to the internet; spotctl ssh forwards one",
    "files": "the job's folder is copied; data copies others",
    "repos": "the job's folder is copied; clone other repositories in setup",
    "volumes": "machines have a disk of their own; use data, outputs and checkpoint in a bucket",
    "max_duration": "no run is ended by its age; budget limits what it spends",
    "stop_duration": "a notice of eviction is passed on at once",
    "retry": "an evicted job always continues; retries says how often a command that failed is tried again",
    "utilization_policy": "a machine that idles is not ended",
    "idle_duration": "machines are returned when the job ends",
    "creation_policy": "machines are rented for each job; reservations names those that you have",
    "fleets": "machines are rented for each job; reservations names those that you have",
    "reservation": "reservations names those that you have, with their zone, type and price",
    "schedule": "spotctl nightly runs a job every night",
    "startup_order": "all nodes start together",
    "stop_criteria": "a command ends when all of its nodes have ended",
    "groups": "all nodes run the same commands on machines of one kind",
    "instances": "machines are rented for each job; reservations names those that you have",
    "backend_options": "image, placement and reservations set what a cloud is asked for",
    "setup": "has no effect in dstack's tasks, either",
    "dstack": "the dstack command is not needed on a machine",
    "priority": "queue: {weight: 2} weighs a job against others",
    "privileged": "containers have no more rights than they need",
    "entrypoint": "commands are run by the shell",
    "shell": "commands are run by sh, or bash where they need it",
    "single_branch": "repositories are not fetched",
    "user": "a container's commands run as root",
    "docker": "containers of the job are not started in containers",
    "registry_auth": "image: {login: NAME} names a variable with USER:PASSWORD",
}
_OF_GPUS = {
    "total_memory": "memory is of one GPU here, and count says how many",
    "compute_capability": "GPUs are named by their model or memory",
}
_CARRIED = (
    *(
        "type",
        "name",
        "commands",
        "nodes",
        "env",
        "image",
        "resources",
        "backends",
        "regions",
        "availability_zones",
    ),
    *("instance_types", "spot_policy", "max_price", "working_dir", "tags", "home_dir"),
)


_FILLED_IN = re.compile(r"\$\{\{[^}\n]*\}\}")


def dstack_draft(file: YamlFile, folder: Path) -> JobDraft:
    """The job of a task; paths are given below `folder`. BadRequest: the file is no task of
    dstack."""
    draft = JobDraft("dstack", file, _VARIABLES)
    task = draft.mapping((), file.content)
    if task.get("type") != "task":
        draft.refuse(("type",), f"is {task.get('type')}; spotctl runs what ends: type: task")
    draft.leave_unknown((), task, _CARRIED, _WITHOUT_COUNTERPART)
    commands = _texts(draft, task, "commands")
    if not commands:
        draft.refuse(("commands",), "is missing: the task runs nothing; write commands: [COMMAND]")
    nodes = task.get("nodes")
    number = int(nodes) if isinstance(nodes, str) and nodes.isdecimal() else nodes
    draft.set_nodes(("nodes",), number)
    _set_environment(draft, task)
    if isinstance(task.get("image"), str):
        draft.image["container"] = task["image"]

    place = task.get("working_dir")
    draft.options["workdir"] = str(folder)
    if isinstance(place, str) and not place.startswith(("/", "~")):
        draft.options["workdir"] = own_path(place, folder)
    elif place is not None:
        draft.leave(("working_dir",), "the job's folder has a path of its own on each machine")

    clouds, regions = _texts(draft, task, "backends"), _texts(draft, task, "regions")
    zones = _texts(draft, task, "availability_zones")
    draft.set_clouds(clouds, regions, zones, ("backends" if clouds else "regions",))

    if types := _texts(draft, task, "instance_types"):
        draft.resources["types"] = types
    _set_machine(draft, draft.mapping(("resources",), task.get("resources")))
    policy = task.get("spot_policy") or "on-demand"
    if policy not in ("spot", "on-demand", "auto"):
        draft.refuse(("spot_policy",), "expected spot, on-demand or auto")
    is_written = task.get("spot_policy") is not None
    draft.set_spot(("spot_policy",), is_spot=policy != "on-demand", is_written=is_written)
    draft.set_max_price(("max_price",), task.get("max_price"))
    draft.set_tags(("tags",), draft.mapping(("tags",), task.get("tags")))

    for filled in sorted({gap for text in commands for gap in _FILLED_IN.findall(text)}):
        draft.leave(
            ("commands",),
            f"dstack fills in {filled}, and nothing does here; write what belongs there",
        )

    commands = [_FILLED_IN.sub("", text) for text in commands]
    if len(commands) > 1:
        # A command that fails ends the task, as dstack joins them.
        commands.insert(0, "set -e")
    draft.set_commands("", "\n".join(commands))
    return draft


def _texts(draft: JobDraft, task: dict[str, Any], key: str) -> list[str]:
    part = task.get(key)
    if part is None:
        return []
    if not isinstance(part, list) or not all(isinstance(text, str) for text in part):
        draft.refuse((key,), "expected a list of texts")
    return [*part]


def _set_environment(draft: JobDraft, task: dict[str, Any]) -> None:
    env = task.get("env")
    if isinstance(env, list):
        for i, entry in enumerate(env):
            name, equals, value = str(entry).partition("=")
            _set_variable(draft, ("env", i), name, value if equals else None)
        return

    texts = draft.file.texts("env")
    for name, value in draft.mapping(("env",), env).items():
        _set_variable(
            draft, ("env", name), name, None if value is None else texts.get(name, str(value))
        )


def _set_variable(draft: JobDraft, loc: Loc, name: str, value: str | None) -> None:
    secret = re.fullmatch(r"\$\{\{ ?secrets\.(\w+) ?\}\}", value or "")
    if secret and secret[1] != name:
        draft.leave(loc, f"is the secret {secret[1]}: export it as {name} where you launch the job")
    draft.set_variable(loc, name, None if secret else value)


def _set_machine(draft: JobDraft, resources: dict[str, Any]) -> None:
    loc: Loc = ("resources",)
    shared = {"shm_size": "containers share the machine's memory"}
    draft.leave_unknown(loc, resources, ("cpu", "memory", "gpu", "disk"), shared)
    if "types" in draft.resources:
        for key in ("cpu", "memory", "gpu"):
            if resources.get(key) is not None:
                draft.leave((*loc, key), "follows from instance_types")
        resources = {key: part for key, part in resources.items() if key == "disk"}

    cpu = resources.get("cpu")
    if isinstance(cpu, dict):
        cpu = f"{cpu['arch']}:{cpu.get('count', '1..')}" if cpu.get("arch") else cpu.get("count")
    if cpu is not None:
        arch, colon, count = str(cpu).rpartition(":")
        if colon:
            draft.resources["arch"] = {"arm": "arm64"}.get(arch.lower(), "x86_64")
        if count == "0":
            draft.leave((*loc, "cpu"), "a machine has a vCPU at least")
            draft.machine["vcpus"] = "1.."
        else:
            draft.machine["vcpus"] = _range(draft, count, (*loc, "cpu"))

    if resources.get("memory") is not None:
        draft.machine["memory_gib"] = _range(draft, resources["memory"], (*loc, "memory"))
    _set_disk(draft, resources.get("disk"), (*loc, "disk"))
    _set_gpu(draft, resources.get("gpu"), (*loc, "gpu"))


def _set_disk(draft: JobDraft, disk: object, loc: Loc) -> None:
    size = disk.get("size") if isinstance(disk, dict) else disk
    if size is None:
        return
    least, dots, most = _range(draft, size, loc).partition("..")
    gib = max(8, round(float(least or most)))
    draft.image["disk_gib"] = gib
    if dots and most:
        draft.leave(loc, f"a disk has one size: {gib} GiB was written")


def _set_gpu(draft: JobDraft, gpu: object, loc: Loc) -> None:
    """A GPU as models, a memory and a count, in a text or a mapping."""
    if gpu is None:
        return

    models, memory, count = _gpu_words(draft, gpu, loc)
    if count == "0":
        draft.leave(loc, "no GPU is wanted")
        return
    for model in models:
        if re.match(_TPU, model):
            draft.refuse_tpu(loc, model)
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", model):
            draft.refuse(loc, f"{model} is not a model of a GPU, as in A100:8")
    if not re.fullmatch(r"(\d+(\.\.\d*)?|\.\.\d+)?", count):
        draft.refuse(loc, f"{count} is not a number of GPUs, as in A100:8")

    if memory:
        least, dots, most = _range(draft, memory, loc).partition("..")
        ends = (f"{end}GB" if end else "" for end in (least, most))
        memory = dots.join(ends) if dots else f"{least}GB"
    elif not models:
        memory = "1GB.."
    # Without a count, dstack takes any, and so the least expensive.
    kinds = [":".join(filter(None, (model, memory, count or "1.."))) for model in models or [""]]
    draft.machine["accelerators"] = kinds[0] if len(kinds) == 1 else kinds


def _gpu_words(draft: JobDraft, gpu: object, loc: Loc) -> tuple[list[str], str, str]:
    """The models, the memory and the count that a GPU's text or mapping has."""
    if isinstance(gpu, dict):
        draft.leave_unknown(loc, gpu, ("name", "count", "memory", "vendor"), _OF_GPUS)
        names = gpu.get("name") or []
        words = [str(gpu.get("vendor") or "")]
        models = [str(name) for name in names] if isinstance(names, list) else str(names).split(",")
        memory, count = _count(gpu.get("memory")), _count(gpu.get("count"))
    else:
        words, models, memory, count = str(gpu).split(":"), [], "", ""

    for word in filter(None, words):
        if re.fullmatch(r"(\d+(\.\.(\d+)?)?|\.\.\d+)", word):
            count = word
        elif re.fullmatch(rf"({_SIZE}[MGT]B)?(\.\.)?({_SIZE}[MGT]B)?", word, re.IGNORECASE):
            memory = word
        elif word.lower() in _OF_TPUS:
            draft.refuse_tpu(loc, str(gpu))
        elif word.lower() == "nvidia":
            continue
        elif word.lower() in _VENDORS:
            draft.leave(loc, f"{word}: a GPU is named by its model, as in gpu: MI300X:8")
        elif models:
            draft.refuse(loc, f"{gpu} names two models, apart from a list such as A100,H100")
        else:
            models = [name.strip() for name in word.split(",") if name.strip()]

    return models, memory, count


def _count(part: object) -> str:
    if isinstance(part, dict):
        return f"{part.get('min') or ''}..{part.get('max') or ''}"
    return "" if part is None else str(part)


def _range(draft: JobDraft, written: object, loc: Loc) -> str:
    """A number or range with units as one of a job file: 16GB.. is 16.. (GiB)."""
    least, dots, most = _count(written).partition("..")
    ends = []
    for end in (least, most):
        number = re.fullmatch(rf"({_SIZE}) ?([MGT]B)?", end.strip(), re.IGNORECASE)
        if end.strip() and (number is None or isinstance(written, bool)):
            draft.refuse(loc, f"{end!r} is not a number, with GB behind it for memory")
        ends.append(
            f"{float(number[1]) * _IN_GIB[(number[2] or 'GB').upper()]:.12g}" if number else ""
        )

    if not any(ends):
        draft.refuse(loc, "is empty; write a number or range")
    return f"{ends[0]}{dots}{ends[1]}"
