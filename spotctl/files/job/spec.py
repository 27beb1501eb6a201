"""`JobSpec`: a job as a job file describes it, in frozen values.

Each key of the file is declared once: here, in `programs` or in `resources`. Paths are absolute:
those in the file are relative to its folder. `reader` reads a file, `sections.written` is the way
back, and `schema` describes the file to editors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pricing_data.market import either
from pricing_data.units import MINUTE
from spotctl.agent.container.named_packages import NamedPackages
from spotctl.files.job import forms
from spotctl.files.job.conversions import AUTO
from spotctl.files.job.forms import ANY
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.resources import Image, Resources
from spotctl.files.job.sections import Key, ListOf, MapOf, OneOf, key
from spotctl.files.job.values import (
    RAY,
    Accelerators,
    ByClock,
    Objective,
    ProgramKind,
    Range,
    Within,
    WorkTime,
)
from spotctl.home.cloud import identities
from spotctl.home.errors import BadRequest

__all__ = [
    "ANY",
    "AUTO",
    "Accelerators",
    "ByClock",
    "JobSpec",
    "LocalMarket",
    "Notify",
    "Objective",
    "ProgramKind",
    "Range",
    "Sharing",
    "Within",
    "check_planned_together",
    "data_variable",
    "output_variable",
]


OLD_NAMES = {"most": "max_bid"}
"""Former names of keys, which are read with a warning."""

_KIND = Key(
    "kind",
    forms.KIND,
    "agileml: a trainer on a varying number of machines, which loses no update when some are "
    "evicted."
    " command: any program that resumes from its own checkpoint. If left out, app or trainer says "
    "the one, and run the other.",
    ("agileml",),
    is_needed=True,
)


@dataclass(frozen=True, slots=True)
class Notify:
    """Where to report how a run ended."""

    webhook: str | None = key(
        forms.WEBHOOK, "Address that gets a POST request.", "https://example.com/hook"
    )
    heartbeat: str | None = key(
        forms.WEBHOOK,
        "Address of a health check for nights: gets /start, then the address itself, or /fail.",
        "https://hc-ping.com/your-uuid",
    )
    to: tuple[str, ...] = key(
        ListOf(forms.SERVICE),
        "Services that get a message through Apprise: e-mail, Telegram, SMS and many others. An "
        "address that holds a secret is in an environment variable.",
        ["$TELEGRAM"],
        ["mailtos://mail.example.com?from=spotctl@example.com&to=me@example.com"],
        default=(),
        is_secret=True,
    )

    @property
    def has_receivers(self) -> bool:
        """Whether messages go anywhere."""
        return bool(self.webhook or self.to)


@dataclass(frozen=True, slots=True)
class LocalMarket:
    """How the market on this computer is replayed; only with clouds: [local]."""

    speed: float = key(
        forms.SPEED, "Seconds of market time in one second; 600 if left out.", 600, default=600.0
    )
    seed: int = key(
        forms.SEED, "Random seed of evictions without a warning; 0 if left out.", 0, default=0
    )
    start: int | None = key(
        forms.MOMENT, "Where in the price history the replay begins.", "2026-01-25T06:00:00Z"
    )
    warning: int = key(
        forms.SPAN,
        "Market time between eviction warning and eviction; 2m if left out.",
        "2m",
        default=2 * MINUTE,
    )
    unwarned: float = key(
        forms.SHARE,
        "Share of evictions that come without a warning; 0.2 if left out.",
        0.2,
        default=0.2,
    )


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a job shares quotas with the others of its queue; jobs with the same tag `user` are one
    user's.
    """

    policy: str | None = key(
        forms.QUEUE_POLICY,
        "What divides quotas that are too small for all jobs; the setting queue_policy if left "
        "out. All jobs of a queue need the same.",
        "max-min-fairness",
    )
    weight: float = key(
        forms.WEIGHT,
        "What an hour until this job's end counts next to one of other jobs; 1 if left out.",
        2,
        default=1.0,
    )


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job for spotctl: what to run, on which machines, by when and for how much."""

    name: str = key(
        forms.JOB_NAME,
        "The job's name; a job has one run at a time.",
        "nightly-recsys",
        is_needed=True,
    )
    program: Training | Command = key(
        OneOf(_KIND, {ProgramKind.AGILEML: Training, ProgramKind.COMMAND: Command}),
        "",
        is_needed=True,
    )
    resources: Resources = key(
        Resources,
        "What may be rented, and where.",
        {"clouds": ["local"], "machines": "4..64"},
        is_needed=True,
    )
    workdir: Path = key(
        forms.FOLDER,
        "Folder of the job's code, relative to this file; the file's own folder if left out.",
        ".",
        default=Path(),
    )
    setup: str | None = key(
        forms.TEXT, "Shell command that prepares each machine.", "pip install -r requirements.txt"
    )
    environment: str | NamedPackages | None = key(
        forms.ENVIRONMENT,
        "The packages that a command imports: a file of workdir, with which each machine gets an "
        "environment of its own; python for one in which setup installs, with pip and uv; "
        "docker:IMAGE; or none. If left out, and there is no setup, the file that workdir has.",
        "requirements.txt",
        "uv.lock",
        "docker:ghcr.io/me/train:1",
    )
    env: Mapping[str, str] = key(
        MapOf(forms.VARIABLE, forms.VARIABLE_VALUE),
        "Environment variables. Values are taken as written: no, 1.0 and 0x10 stay these texts.",
        {"LOG_LEVEL": "info"},
        default={},
    )
    secrets: tuple[str, ...] = key(
        ListOf(forms.VARIABLE, may_be_empty=True),
        "Names of environment variables whose values are read at launch and never stored.",
        ["HF_TOKEN"],
        default=(),
        is_secret=True,
    )
    data: Mapping[str, str] = key(
        MapOf(forms.PART_NAME, forms.LOCATION),
        "Data that each machine has at $DATA_NAME. Rented machines fetch a folder of this computer "
        "from the bucket of the job's checkpoint or outputs.",
        {"ratings": "s3://bucket/ratings/"},
        {"corpus": "/data/corpus"},
        default={},
    )
    data_buckets: Mapping[str, str] = key(
        MapOf(forms.REGION, forms.BUCKET),
        "Buckets in regions of the job: data that rented machines fetch from the bucket of the "
        "job's checkpoint or outputs is copied there once, for all machines of the region.",
        {"us-west-2": "s3://my-bucket-west"},
        default={},
    )
    outputs: Mapping[str, str] = key(
        MapOf(forms.PART_NAME, forms.LOCATION),
        "Where results are written. agileml writes `model`, to a local folder if left out; a "
        "command finds each path in $OUTPUT_NAME.",
        {"model": "s3://bucket/models/"},
        default={},
    )
    objective: Objective = key(
        forms.OBJECTIVE,
        "What to optimize; min-cost-slo needs a deadline and makespan-within-budget a budget. "
        "min-cost if left out.",
        "min-cost",
        default=Objective.MIN_COST,
    )
    deadline: Within | ByClock | None = key(
        forms.DEADLINE,
        "Latest finish: a time after launch (10h), or the next such time of day (22:00) in the "
        "time zone of the computer that launches the job. On the local market, market time counts.",
        "10h",
        "22:00",
    )
    hours: WorkTime | None = key(
        forms.WORK_TIME,
        "How long the job keeps all its machines busy without evictions, if throughputs and stop "
        "do not say, and on which type of machine: by default the first of types.",
        "8h",
        "8h on c6i.2xlarge",
    )
    budget: int | None = key(forms.MONEY, "Spending stops before it exceeds this.", "25 USD")
    value_of_time: int | None = key(
        forms.PER_HOUR,
        "What an hour less of run time is worth to you; lookahead and price-capacity pay up to "
        "that for speed. If left"
        " out, lookahead uses a usual share of the on-demand cost, and price-capacity the price of "
        "its machines.",
        "5 USD/h",
    )
    max_bid: int | None = key(
        forms.PER_HOUR, "Highest bid for a machine; its on-demand price if left out.", "0.50 USD/h"
    )
    throughputs: Mapping[str, float] = key(
        MapOf(forms.TYPE_NAME, forms.WORK_RATE),
        "Measured work per hour of one machine, by type.",
        {"c6i.2xlarge": 410},
        default={},
    )
    image: Image = key(
        Image, "Image and disk of cloud machines.", {"disk_gib": 100}, default=Image()
    )
    identity: Mapping[str, str] = key(
        MapOf(forms.RENTED_CLOUD, forms.TEXT),
        f"The machines' identity by cloud: {either(identities())}."
        " `spotctl doctor --policy` prints the least they need.",
        {"aws": "trainer"},
        default={},
    )
    tags: Mapping[str, str] = key(
        MapOf(forms.TAG_NAME, forms.TAG_VALUE),
        "Labels by which `spotctl report cost` groups costs; cloud machines are tagged with them, "
        "too.",
        {"team": "search"},
        default={},
    )
    strategy: str = key(
        forms.STRATEGY,
        "How machines are chosen, bid for and returned.",
        "auto",
        "price-capacity",
        default=AUTO,
    )
    notify: Notify = key(
        Notify,
        "Where to report how a run ended.",
        {"webhook": "https://example.com/hook"},
        default=Notify(),
    )
    track: Mapping[str, str] = key(
        forms.TRACK,
        "Experiment trackers that get a run's cost, evictions, machines and loss: mlflow or wandb, "
        "or with a place.",
        "mlflow",
        {"mlflow": "http://127.0.0.1:5000"},
        {"wandb": "team/project"},
        default={},
    )
    queue: Sharing = key(
        Sharing, "How the job shares quotas with other jobs.", {"weight": 2}, default=Sharing()
    )
    local: LocalMarket = key(
        LocalMarket,
        "How the market on this computer is replayed.",
        {"speed": 600, "seed": 0},
        default=LocalMarket(),
    )

    @property
    def kind(self) -> ProgramKind:
        return ProgramKind.AGILEML if isinstance(self.program, Training) else ProgramKind.COMMAND

    @property
    def on_ray(self) -> bool:
        """Whether the job trains on a Ray cluster, and rents nothing."""
        return isinstance(self.program, Training) and self.program.engine == RAY

    @property
    def cluster(self) -> dict[str, Any]:
        """Where a job trains on Ray, and its nodes there."""
        assert isinstance(self.program, Training)
        nodes = {
            "reliable": self.resources.reliable.machines,
            "transient": self.resources.machines.least,
        }
        return {"engine": self.program.engine, "address": self.program.address or "", **nodes}

    def with_reliable(self, machines: int) -> JobSpec:
        """The job with this number of reliable machines."""
        reliable = replace(self.resources.reliable, machines=machines)
        return replace(self, resources=replace(self.resources, reliable=reliable))

    @property
    def is_local(self) -> bool:
        """Whether the job runs on the local market only."""
        return self.resources.clouds == ("local",)


def data_variable(name: str) -> str:
    """The environment variable that holds the path of data of this name.

    >>> data_variable("ratings")
    'DATA_RATINGS'
    """
    return f"DATA_{name.upper().replace('-', '_')}"


def output_variable(name: str) -> str:
    """The environment variable that holds the path of a program's output of this name.

    >>> output_variable("best-model")
    'OUTPUT_BEST_MODEL'
    """
    return f"OUTPUT_{name.upper().replace('-', '_')}"


def check_planned_together(specs: Sequence[JobSpec]) -> None:
    """Refuses jobs that cannot be planned together: two of one name, by which plans and runs are
    kept, or one that rents nothing, where prices decide or a market is shared."""
    names = [spec.name for spec in specs]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(
            f"two of the files describe a job named {double!r}; give each job its own name"
        )
    if ray := next((spec for spec in specs if spec.on_ray), None):
        raise BadRequest(
            f"{ray.name}: engine: ray rents nothing, so no prices decide about it; launch the job "
            "alone, with spotctl launch"
        )
