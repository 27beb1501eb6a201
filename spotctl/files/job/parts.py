"""The parts of a job.yaml as they are written, with what editors show beside each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from agileml.apps.registry import BUILT_IN
from spotctl.files.job import forms
from spotctl.files.job.spec import Image, Kind, LocalMarket, Objective
from spotctl.files.job.units import span_text

IS_LIST, IS_MAPPING = "<list>", "<mapping>"
"""The two ways of `types`, as they stand in the place of an error; no key is called so."""


class Part(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _key(description: str, *examples: object) -> Any:  # noqa: ANN401 - stands for a field of any type
    """A key that may be left out, or be empty."""
    return Field(default=None, description=description, examples=list(examples))


def _needed(description: str, *examples: object) -> Any:  # noqa: ANN401
    return Field(description=description, examples=list(examples))


class StopPart(Part):
    """When the training is done; of several criteria the first that holds."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    clocks: forms.Clocks | None = _key("After so many passes over the data.", 2000)
    minutes: forms.Minutes | None = _key("After so many minutes of training.", 90)
    loss: forms.Finite | None = _key("When the loss is down to this.", 0.15)
    converged: forms.Tolerance | None = _key("When the loss no longer falls by this share.", 0.02)


class CheckpointPart(Part):
    """Where the command keeps its checkpoint, and how often it writes one."""

    path: forms.Location = _needed("A folder that outlives every machine.", "s3://bucket/ckpt/")
    every: forms.Every | None = _key(
        "auto goes by how often machines are taken and by what a checkpoint was seen to cost.", "auto", "15m"
    )


class NeedsPart(Part):
    """What a machine must have, whatever its type."""

    vcpus: forms.VcpuRange | None = _key("How many vCPUs.", "8..")
    memory_gib: forms.MemoryRange | None = _key("How much memory in GiB.", "16..")
    accelerators: forms.AcceleratorCount | None = _key("Which accelerator, and how many.", "V100:1..")


class ReliablePart(Part):
    """Machines on demand, which nobody takes back."""

    machines: forms.Machines | None = _key(
        "How many, beside the transient ones; 1 for agileml, which keeps the model there, and 0 for a command.", 1
    )
    type: forms.TypeName | None = _key("Of which type; any that is allowed if left out.", "c6i.large")


_ONCE: dict[str, JsonValue] = {"uniqueItems": True}
"""For editors; `jobspec.checks` says which stands there twice."""


def _way(written: object) -> str:
    return IS_MAPPING if isinstance(written, dict) else IS_LIST


Types = Annotated[
    Annotated[list[forms.TypeGlob], Field(min_length=1, json_schema_extra=_ONCE), Tag(IS_LIST)]
    | Annotated[NeedsPart, Tag(IS_MAPPING)],
    Discriminator(_way),
]


class ResourcesPart(Part):
    """What may be rented."""

    clouds: list[forms.CloudName] = Field(
        description="Where; local is a market that is replayed on this computer, and costs nothing.",
        examples=[["local"], ["aws", "gcp"]],
        min_length=1,
        json_schema_extra=_ONCE,
    )
    types: Types | None = _key(
        "Which machines: names or globs, or what they must have; any if left out.",
        ["c6i.2xlarge", "n2-standard-8"],
        {"vcpus": "8..", "memory_gib": "16.."},
    )
    regions: Annotated[list[forms.Region], Field(min_length=1, json_schema_extra=_ONCE)] | None = _key(
        "In which regions; all if left out.", ["us-east-1", "us-central1"]
    )
    machines: forms.MachineRange | None = _key(
        "How many transient machines at one time; needed for agileml, and a command has as many as it has nodes.",
        "4..64",
    )
    reliable: ReliablePart | None = _key("Machines on demand beside the transient ones.", {"machines": 1})


class ImagePart(Part):
    """What machines boot."""

    ami: forms.AmiName | None = _key("Image on AWS; auto is the newest plain one.", "auto")
    container: forms.Word | None = _key("Container to run the job in; none if left out.", "pytorch/pytorch:latest")
    disk_gib: forms.DiskGib | None = _key(f"Size of the disk in GiB; {Image().disk_gib} if left out.", 100)


class IdentityPart(Part):
    """What the machines may do, by cloud."""

    aws: forms.Word | None = _key("Name of an instance profile.", "profile-name")
    gcp: forms.Word | None = _key("E-mail of a service account.", "trainer@project.iam.gserviceaccount.com")
    azure: forms.Word | None = _key("Id of a managed identity.", "trainer")


class NotifyPart(Part):
    """Who is told when the job ends or needs somebody."""

    webhook: forms.Webhook | None = _key("Address to which it is posted.", "https://example.com/hook")


_LOCAL = LocalMarket()


class LocalPart(Part):
    """How the market on this computer is replayed; only with clouds: [local]."""

    speed: forms.Speed | None = _key(f"Seconds of the market in one second; {_LOCAL.speed:g} if left out.", 600)
    seed: forms.Seed | None = _key(f"Of all that is drawn; {_LOCAL.seed} if left out.", 0)
    start: forms.Moment | None = _key("Where in the history it begins.", "2026-01-25T06:00:00Z")
    warning: forms.Span | None = _key(
        f"How long before an eviction a machine is warned, in market time; {span_text(_LOCAL.warning)} if left out.",
        "2m",
    )
    unwarned: forms.Share | None = _key(
        f"Share of the evictions that come without a warning; {_LOCAL.unwarned:g} if left out.", 0.2
    )


def _where(key: str, value: str, then: JsonValue) -> JsonValue:
    """JSON Schema of what follows where a key has a value."""
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _keys(needed: Iterable[str], barred: Iterable[str] = ()) -> JsonValue:
    """JSON Schema of a mapping in which some keys must stand, and others must not."""
    said: dict[str, JsonValue] = {name: {"not": {"type": "null"}} for name in needed}
    return {"required": [*said], "properties": said | {name: {"type": "null"} for name in barred}}


ONLY_AGILEML, ONLY_COMMAND = ("app", "args", "stop"), ("run", "nodes", "checkpoint")

_TOGETHER: list[JsonValue] = [
    _where("kind", Kind.AGILEML, _keys(["app", "stop"], ONLY_COMMAND)),
    _where("kind", Kind.AGILEML, {"properties": {"resources": _keys(["machines"])}}),
    _where("kind", Kind.COMMAND, _keys(["run"], ONLY_AGILEML)),
    _where("objective", Objective.MIN_COST_SLO, _keys(["deadline"])),
    _where("objective", Objective.MAKESPAN_WITHIN_BUDGET, _keys(["budget"])),
]


class JobFile(Part):
    """A job for spotctl: what to train, on which machines, by when and for how much."""

    model_config = ConfigDict(json_schema_extra={"allOf": _TOGETHER})

    name: forms.JobName = _needed("What the job is called; one run of it at a time.", "nightly-recsys")
    kind: forms.KindName = _needed(
        "agileml: a trainer on all machines there are, which loses nothing when some are taken."
        " command: any program that goes on from its checkpoint.",
        "agileml",
    )
    app: forms.App | None = _key(
        f"For agileml: the trainer, built in ({', '.join(BUILT_IN)}) or your own in workdir (module:Class, FILE.py).",
        "mf",
        "apps.recsys:Recsys",
    )
    args: dict[forms.Keyword, forms.Argument] | None = _key("For agileml: arguments of the trainer.", {"rank": 64})
    stop: StopPart | None = _key("For agileml: when the training is done.", {"clocks": 2000}, {"converged": 0.02})
    run: forms.Text | None = _key(
        "For a command: what the shell runs on each node. SPOTCTL_* variables name nodes, ranks and addresses.",
        "torchrun train.py --resume",
    )
    nodes: forms.Nodes | None = _key("For a command: how many nodes, which start, stop and move together.", 2)
    checkpoint: CheckpointPart | None = _key(
        "For a command: where its checkpoint lies.", {"path": "s3://bucket/ckpt/", "every": "auto"}
    )
    setup: forms.Text | None = _key("Shell command that prepares each machine.", "pip install -r requirements.txt")
    workdir: forms.Text | None = _key("Folder of the job's code, seen from this file; its own if left out.", ".")
    env: dict[forms.Variable, forms.VariableValue] | None = _key("Environment variables.", {"LOG_LEVEL": "info"})
    secrets: Annotated[list[forms.Variable], Field(json_schema_extra=_ONCE)] | None = _key(
        "Names of variables whose values are taken from the environment at launch and never written.", ["HF_TOKEN"]
    )
    data: dict[forms.PartName, forms.Location] | None = _key(
        "Data to bring near the machines, by name; $DATA_NAME is where it lies.", {"ratings": "s3://bucket/ratings/"}
    )
    outputs: dict[forms.PartName, forms.Location] | None = _key(
        "Where the model and logs end up; a folder of this computer if left out.", {"model": "s3://bucket/models/"}
    )
    image: ImagePart | None = _key("What machines boot.", {"disk_gib": 100})
    identity: IdentityPart | None = _key("What the machines may do, by cloud.", {"aws": "profile-name"})
    resources: ResourcesPart = _needed("What may be rented, and where.", {"clouds": ["local"], "machines": "4..64"})
    objective: forms.ObjectiveName | None = _key(
        "What is best; min-cost-slo needs a deadline and makespan-within-budget a budget. min-cost if left out.",
        "min-cost",
    )
    deadline: forms.Deadline | None = _key(
        "Latest finish: a time after launch (10h), or the next such time of day (22:00) in the time zone of the"
        " computer that launches the job. On the local market, market time counts.",
        "10h",
        "22:00",
    )
    hours: forms.Span | None = _key("How long all its machines take undisturbed, where nothing else says.", "8h")
    budget: forms.Money | None = _key("Spending ends before it is passed.", "25 USD")
    throughputs: dict[forms.TypeName, forms.Positive] | None = _key(
        "Measured work per hour of one machine, by type.", {"c6i.2xlarge": 410}
    )
    tags: dict[forms.TagName, forms.TagValue] | None = _key("By which costs are grouped.", {"team": "search"})
    strategy: forms.StrategyName | None = _key("How machines are bought and given back.", "auto", "price-capacity")
    notify: NotifyPart | None = _key("Who is told how it went.", {"webhook": "https://example.com/hook"})
    local: LocalPart | None = _key("How the market on this computer is replayed.", {"speed": 600, "seed": 0})
