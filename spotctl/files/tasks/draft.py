"""A job file that is made of another tool's task: what was carried, and what has no counterpart,
with its line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import yaml

from pricing_data.market import is_region_of
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.files.job.conversions import RESERVED_PREFIX, money_text, read_variable
from spotctl.files.job.environment import PYTHON
from spotctl.files.job.forms import TAG_NAME, TAG_VALUE, job_name
from spotctl.files.job.spec import data_variable
from spotctl.files.yaml_file import Loc, Problem, YamlFile, refusal
from spotctl.home.cloud import mapped_ports, rented_clouds

MAX_USD = 10**6
"""Per hour."""
_BASH = re.compile(
    r"\[\[|\(\(|<\(|&>|<<<|\bsource |\bdeclare |\blocal |\bfunction |\w=\(|\$\{\w+[\[/^,]|pipefail|\bconda |"
    r"\[ [^\n]* == "
)
"""Signs of a script for bash; spotctl runs commands with sh."""
_CREDENTIALS = re.compile(r"(^|/)\.(ssh|aws|azure|kube|netrc|config/gcloud)(/|$)")
_KEPT = re.compile(r"checkpoint|ckpt", re.IGNORECASE)
_PYTHON = re.compile(r"\b(accelerate|deepspeed|pip3?|python3?|torchrun|uv)\b")
_USUAL_MACHINES = {
    "SkyPilot": {"vcpus": "8..", "memory_gib": "32.."},
    "dstack": {"vcpus": "2..", "memory_gib": "8.."},
}
"""The machines that a tool takes for a task that asks for none."""


class JobDraft:
    """The job file to write, by its keys, and the parts of the task that it lacks."""

    def __init__(self, tool: str, file: YamlFile, variables: Mapping[str, str]) -> None:
        """`variables` are those that the tool sets for the task's commands, as the shell finds them
        here.
        """
        self.tool, self.file, self._variables = tool, file, variables
        self.left: list[Problem] = []
        self.program: dict[str, Any] = {"kind": "command"}
        self.resources: dict[str, Any] = {}
        self.machine: dict[str, str | list[str]] = {}
        """The keys below `types`: requirements of a machine."""
        self.image: dict[str, object] = {}
        self.env: dict[str, str] = {}
        self.secrets: list[str] = []
        self.data: dict[str, str] = {}
        self.options: dict[str, Any] = {}
        self._links: list[str] = []

    def leave(self, loc: Loc, why: str) -> None:
        """Lists a part of the task as one that the job lacks."""
        self.left.append(Problem(loc, why))

    def refuse(self, loc: Loc, message: str) -> NoReturn:
        """BadRequest, with the line of a part that no task has."""
        raise refusal(self.file, [Problem(loc, message)])

    def mapping(self, loc: Loc, part: object) -> dict[str, Any]:
        """A part that must be a mapping; an empty one is none. BadRequest: it is something else."""
        if part is not None and (
            not isinstance(part, dict) or not all(isinstance(key, str) for key in part)
        ):
            self.refuse(loc, f"expected a mapping; correct it, as {self.tool} needs")
        return part if isinstance(part, dict) else {}

    def leave_unknown(
        self, loc: Loc, keys: Iterable[str], carried: Iterable[str], reasons: Mapping[str, str]
    ) -> None:
        """Lists the keys of a part that are not carried, each with its reason."""
        for key in keys:
            if key not in carried:
                unknown = f"{self.tool} has no key of that name there, as far as spotctl knows"
                self.leave((*loc, key), reasons.get(key, unknown))

    def refuse_tpu(self, loc: Loc, name: str) -> NoReturn:
        """BadRequest: a task for TPUs, which are not rented."""
        self.refuse(loc, f"{name} is a TPU, and spotctl rents GPUs; name some, as in A100:8")

    def set_nodes(self, loc: Loc, nodes: object) -> None:
        """The number of nodes, if the task says one."""
        if nodes is not None and (
            not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1
        ):
            self.refuse(loc, "expected a whole number from 1 up")
        if nodes not in (None, 1):
            self.program["nodes"] = nodes

    def set_max_price(self, loc: Loc, price: object) -> None:
        """The most that a machine may cost per hour, if the task says it."""
        if price is None:
            return
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < MAX_USD:
            self.refuse(loc, "expected an amount in USD above 0")
        self.options["max_bid"] = f"{money_text(round(price * NANOS_PER_DOLLAR))}/h"

    def set_spot(self, loc: Loc, *, is_spot: bool, is_written: bool) -> None:
        """On-demand machines, where the task does not ask for spot machines."""
        if not is_spot:
            self.options["strategy"] = "on-demand"
            why = "asks for no spot machines" if is_written else "is left out, so no spot machines"
            self.leave(loc, f"{why}: strategy: on-demand was written; remove it for spot machines")

    def set_tags(self, loc: Loc, tags: Mapping[str, object]) -> None:
        """The labels that every cloud accepts."""
        kept = dict[str, str]()
        for name, value in tags.items():
            with suppress(ValueError):
                kept[TAG_NAME.read(name)] = TAG_VALUE.read(str(value))
        if kept:
            self.options["tags"] = kept
        for name in tags.keys() - kept.keys():
            self.leave((*loc, name), "tags have a-z, 0-9, - and _ only, which every cloud accepts")

    def set_clouds(
        self, clouds: Iterable[str], regions: Iterable[str], zones: Iterable[str], loc: Loc
    ) -> None:
        """The clouds that are rented and have one of the regions; all of them where the task names
        none.
        """
        named, places = list(dict.fromkeys(clouds)), list(dict.fromkeys(regions))
        for cloud in named:
            if cloud not in rented_clouds():
                self.leave(
                    loc,
                    f"{cloud} is no cloud that spotctl rents from: {', '.join(rented_clouds())}",
                )

        rented = [cloud for cloud in named if cloud in rented_clouds()] or list(rented_clouds())
        if "nodes" in self.program:
            rented = self._with_networks(rented, named, loc)
        known = [place for place in places if any(is_region_of(cloud, place) for cloud in rented)]
        for place in places:
            if place not in known:
                self.leave(loc, f"{place} is no region of {' or '.join(rented)}")

        with_regions = [
            cloud for cloud in rented if any(is_region_of(cloud, place) for place in known)
        ]
        self.resources["clouds"] = with_regions or rented
        if known:
            self.resources["regions"] = known
        if zones := list(dict.fromkeys(zones)):
            self.resources["zones"] = zones

    def _with_networks(self, rented: list[str], named: list[str], loc: Loc) -> list[str]:
        """The clouds whose machines reach each other at all ports, as nodes of a command must."""
        linked = [cloud for cloud in rented_clouds() if mapped_ports(cloud) is None]
        for cloud in named:
            if cloud in rented_clouds() and cloud not in linked:
                self.leave(
                    loc,
                    f"machines of {cloud} reach each other at one port, and several nodes need "
                    "more",
                )

        left = [cloud for cloud in rented if cloud in linked]
        if not left:
            self.refuse(
                loc,
                f"several nodes cannot run on {' or '.join(rented)}; name another cloud, or one "
                "node",
            )

        return left

    def set_variable(self, loc: Loc, name: str, value: object) -> None:
        """An environment variable; one without a value is read when the job is launched."""
        try:
            read_variable(name)
        except ValueError:
            self.leave(
                loc,
                f"{name} cannot be set: {RESERVED_PREFIX}... are spotctl's, and a name has "
                "letters, digits, _",
            )
            return
        if value is None:
            self.secrets.append(name)
        elif isinstance(value, bool):
            self.env[name] = str(value).lower()
        else:
            self.env[name] = str(value)

    def mount(self, loc: Loc, path: str, source: str, *, is_written: bool) -> None:
        """A bucket or a folder at a path: data, or the checkpoint if it is written to and named
        so."""
        if _CREDENTIALS.search(path) or _CREDENTIALS.search(source):
            self.leave(
                loc, "files with credentials are copied to no bucket; name variables in secrets"
            )
            return

        scheme, is_url, _ = source.partition("://")
        if is_url and scheme not in clouds_by_scheme():
            stores = ", ".join(f"{scheme}://" for scheme in clouds_by_scheme())
            self.leave(
                loc,
                f"{source}: of buckets, only {stores} are read; copy it there, or fetch it in "
                "setup",
            )
            return
        if is_url and is_written and _KEPT.search(path) and "checkpoint" not in self.program:
            self.program["checkpoint"] = {"path": source}
            self._links.append(_link(path, "SPOTCTL_CHECKPOINT_DIR"))
            return

        name = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")
        name = name if name[:1].isalpha() else f"data-{name}".strip("-")
        while name in self.data:
            name += "-more"
        self.data[name] = source
        self._links.append(_link(path, data_variable(name)))

        if is_written:
            self.leave(
                loc,
                f"what the job writes below {path} is not kept; use outputs (or checkpoint) for "
                "that",
            )

    def set_commands(self, setup: str, run: str) -> None:
        """The commands, after the variables that the tool sets and the mounted paths."""
        used = [
            f'export {name}="{value}"'
            for name, value in self._variables.items()
            if re.search(rf"\b{name}\b", f"{setup}\n{run}")
        ]
        if setup.strip():
            needs = any(name in setup for name in self._variables)
            self.options["setup"] = "\n".join([*(used if needs else ()), _command(setup)])
        if run.strip():
            self.program["run"] = "\n".join([*self._links, *used, _command(run)])

    def job(self, name: str) -> dict[str, Any]:
        """The job file's content."""
        if "types" not in self.resources:
            self.resources["types"] = self.machine or _USUAL_MACHINES[self.tool]
        parts = {
            "env": self.env,
            "secrets": list(dict.fromkeys(self.secrets)),
            "data": self.data,
            "image": self.image,
        }
        words = f"{self.options.get('setup', '')} {self.program.get('run', '')}"
        if "container" not in self.image and _PYTHON.search(words):
            # The tools' images have a Python with pip; a cloud's own has neither python nor pip.
            parts["environment"] = PYTHON

        given = {key: part for key, part in parts.items() if part}
        return {
            "name": job_name(name),
            **self.program,
            **given,
            **self.options,
            "resources": self.resources,
        }

    def text(self, name: str) -> str:
        """The job file, with what was assumed and what was left out as comments."""
        content = self.job(name)
        lines = [
            f"# Written by spotctl init from {self.file.path}, a task of {self.tool}.",
            "# Assumed: hours (how long the job runs if never evicted) and budget, which no such "
            "task says.",
        ]
        if content["resources"]["types"] == _USUAL_MACHINES[self.tool]:
            lines.append(f"# The task asks for no machines; types are what {self.tool} then takes.")

        if "checkpoint" not in content:
            lines.append("# Without a checkpoint, an eviction starts the job from scratch:")
            lines.append(
                "# checkpoint: {path: s3://my-bucket/checkpoints/}   # copies of "
                "$SPOTCTL_CHECKPOINT_DIR"
            )

        if self.data or "checkpoint" in content:
            lines.append(
                "# Machines need an identity that may use the buckets: identity: {aws: NAME}"
            )

        if self.left:
            lines.append(f"# Not carried from {self.file.path}:")
            lines += [f"#   line {line}: {key}: {why}" for line, key, why in self.listed()]

        assumed = {"hours": content.pop("hours", "1h"), "budget": content.pop("budget", "25 USD")}
        resources = content.pop("resources")
        content = {**content, **assumed, "resources": resources}
        dumped: str = yaml.dump(
            content, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True
        )

        return "\n".join(lines) + "\n\n" + dumped

    def listed(self) -> list[tuple[int, str, str]]:
        """The parts that the job lacks: line, key and reason, by line."""
        return sorted(
            {
                (self.file.line(part.loc), ".".join(map(str, part.loc)), part.message)
                for part in self.left
            }
        )


class _Dumper(yaml.SafeDumper):
    """Writes commands of several lines as they are typed."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _represent)


def own_path(path: str, folder: Path) -> str:
    """A path of a task as the job file names it, relative to the folder of the task."""
    return path if path.startswith(("/", "~")) else str(folder / path)


def _command(text: str) -> str:
    """A script for sh, or one that bash runs."""
    script = text.strip()
    return f"bash -c {shlex.quote(script)}" if _BASH.search(text) else script


def _link(path: str, variable: str) -> str:
    place = f'"$HOME"{shlex.quote(path[1:])}' if path.startswith("~/") else shlex.quote(path)
    return f'mkdir -p "$(dirname {place})" && ln -sfn "${variable}" {place} || exit'
