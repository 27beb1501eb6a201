"""`JobSpec`: a job as a job file describes it, in frozen values. Each key of the file is declared here, and only here.

Paths are absolute: those in the file are relative to its folder. `reader` reads a file, `sections.written` is the way
back, and `schema` describes the file to editors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agileml.apps.builtin import BUILT_IN
from pricing_data.units import MINUTE
from spotctl.errors import BadRequest
from spotctl.files.job import forms
from spotctl.files.job.devices import CPU
from spotctl.files.job.forms import ANY, AUTO
from spotctl.files.job.sections import Key, ListOf, MapOf, OneOf, key, needed
from spotctl.files.job.values import Accelerators, ByClock, Objective, ProgramKind, Range, Within

__all__ = [
    "ANY",
    "AUTO",
    "Accelerators",
    "ByClock",
    "Checkpoint",
    "Command",
    "JobSpec",
    "LocalMarket",
    "Needs",
    "Notify",
    "Objective",
    "Parallel",
    "ProgramKind",
    "Range",
    "Reliable",
    "Resources",
    "Stop",
    "Training",
    "Within",
    "check_names",
    "check_rents",
    "data_variable",
    "output_variable",
]


@dataclass(frozen=True, slots=True)
class Stop:
    """When a training ends: as soon as one of these criteria holds."""

    clocks: int | None = key(forms.CLOCKS, "Stop after this many clocks (passes over the data).", 2000)
    span: int | None = key(forms.MINUTES, "Stop after this many minutes of training.", 90, name="minutes")
    loss: float | None = key(forms.FINITE, "Stop when the loss is at most this.", 0.15)
    converged: float | None = key(
        forms.TOLERANCE, "Stop when five clocks lower the loss by less than this share.", 0.02
    )


@dataclass(frozen=True, slots=True)
class SlowMachines:
    """What a training does about machines that are slower than others."""

    reassign: bool = key(forms.FLAG, "Workers that fall behind lend work to faster ones.", True, default=False)
    backup_workers: bool | int | str = key(
        forms.BACKUP_WORKERS,
        "Clocks end without the slowest workers: as many as lets the loss fall fastest, with auto only while that"
        " clearly pays; a number fixes it. For trainers whose updates are gradients.",
        "auto",
        2,
        default=False,
    )
    balance_servers: bool = key(forms.FLAG, "Parameters move away from servers that are slow.", True, default=False)


@dataclass(frozen=True, slots=True)
class Training:
    """An AgileML trainer."""

    app: str = needed(
        forms.APP,
        f"For agileml: the trainer, built in ({', '.join(BUILT_IN)}) or your own in workdir"
        " (module:Class, FILE.py:NAME).",
        "mf",
        "apps.recsys:Recsys",
    )
    stop: Stop = needed(Stop, "For agileml: when the training ends.", {"clocks": 2000}, {"converged": 0.02})
    args: Mapping[str, object] = key(
        MapOf(forms.KEYWORD, forms.ARGUMENT), "For agileml: arguments of the trainer.", {"rank": 64}, default={}
    )
    stragglers: SlowMachines = key(
        SlowMachines,
        "For agileml: what is done about machines that are slower than others.",
        {"reassign": True, "backup_workers": "auto"},
        default=SlowMachines(),
    )
    wire: str | None = key(
        forms.WIRE,
        "For agileml: what parameters and updates are rounded to on their way between machines; bf16 and fp16 take half"
        " the bytes. If left out, as the trainer declares.",
        "bf16",
        "fp16",
    )
    engine: str | None = key(
        forms.ENGINE,
        "For agileml: ray trains on a Ray cluster that is there already, and nothing is rented. If left out, machines"
        " are rented.",
        forms.RAY,
    )
    address: str | None = key(
        forms.RAY_ADDRESS,
        "With engine: ray: the cluster; auto on one of its machines. If left out: RAY_ADDRESS, or a cluster on this"
        " computer that ends with the run.",
        "10.0.0.4:6379",
        AUTO,
    )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a command keeps its checkpoint, and how often it writes one."""

    path: str = needed(forms.LOCATION, "A folder that outlives every machine.", "s3://bucket/ckpt/")
    every: int | None = key(
        forms.EVERY,
        "Time between checkpoints; auto chooses it from the eviction rate and the measured cost of a checkpoint.",
        "auto",
        "15m",
    )
    size: int | None = key(
        forms.SIZE,
        "Its size, for the cost of moving it to another region; measured as soon as one is written, if left out.",
        "50GB",
    )


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a command's model is split over the devices of its machines."""

    profile: str = key(
        forms.TEXT,
        "Profile of the model, in workdir, as `spotctl parallel profile` writes it; profile.json if left out.",
        "profile.json",
        default="profile.json",
    )
    device: str = key(
        forms.DEVICE,
        "What the profile was measured on: an accelerator, or cpu for a core; cpu if left out. Other accelerators are"
        " estimated from it.",
        "V100",
        default=CPU,
    )
    updates: int | None = key(forms.CLOCKS, "How many updates the job makes, to tell its length.", 5000)
    batch: int | None = key(forms.AUTO_OR_COUNT, "Samples per update; 8 microbatches if left out.", 512, "auto")
    microbatch: int | None = key(
        forms.AUTO_OR_COUNT, "Samples per microbatch: a profiled size; the largest if left out.", "auto", 4
    )
    scheme: str = key(
        forms.SCHEME,
        "How microbatches flow through the pipeline stages; auto chooses among those that delay no gradient.",
        AUTO,
        "2bw",
        default=AUTO,
    )
    stages: int | None = key(forms.AUTO_OR_COUNT, "Pipeline stages.", "auto", 4)
    replicas: int | None = key(forms.AUTO_OR_COUNT, "Pipelines next to each other.", "auto", 2)
    chunks: int | None = key(forms.AUTO_OR_COUNT, "Chunks per device of the interleaved scheme.", "auto", 2)
    tensor: int = key(
        forms.TENSOR, "Devices of a machine that share each layer of as many parts; 1 if left out.", 2, default=1
    )
    recompute: bool | None = key(
        forms.AUTO_OR_FLAG, "Whether activations are computed again in the backward pass.", "auto", True
    )
    optimizer: str = key(forms.OPTIMIZER, "Its state takes memory; adam if left out.", "adam", default="adam")


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command that runs on each node; all nodes start, stop and move together."""

    run: str = needed(
        forms.TEXT,
        "For a command: what the shell runs on each node. SPOTCTL_* variables hold node names, ranks and addresses.",
        "torchrun train.py --resume",
    )
    nodes: int = key(forms.NODES, "For a command: number of nodes; 1 if left out.", 2, default=1)
    checkpoint: Checkpoint | None = key(
        Checkpoint, "For a command: where its checkpoint is.", {"path": "s3://bucket/ckpt/", "every": "auto"}
    )
    retries: Mapping[str, int] = key(
        MapOf(forms.FAILURE, forms.RETRIES),
        "For a command: how often it is tried again, by its exit status (137: killed, often for lack of memory), or"
        " after a failed setup. If left out, a setup once on another machine, and a command that exits with 75 to be"
        " moved 4 times in a row.",
        {"137": 2, "setup": 1},
        default={},
        misplaced="remove it: a training replaces nodes that fail, and ends once they fail again in the same way",
    )
    parallel_auto: str | None = key(
        forms.WORD_AUTO,
        "For a command: auto splits its model over the devices of its machines; $SPOTCTL_PARALLEL holds the plan.",
        AUTO,
        name="parallel",
    )
    parallel_as_given: Parallel | None = key(
        Parallel, "Or how it is split.", {"batch": 512, "scheme": "flush"}, name="parallel"
    )

    @property
    def parallel(self) -> Parallel | None:
        """How the model is split; None if the job does not ask for that."""
        return Parallel() if self.parallel_auto else self.parallel_as_given


_KIND = Key(
    "kind",
    forms.KIND,
    "agileml: a trainer on a varying number of machines, which loses no update when some are evicted."
    " command: any program that resumes from its own checkpoint.",
    ("agileml",),
    is_needed=True,
)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a machine must have, whatever its type."""

    vcpus: Range[int] | None = key(forms.VCPU_RANGE, "Number of vCPUs.", "8..")
    memory_gib: Range[float] | None = key(forms.MEMORY_RANGE, "Memory in GiB.", "16..")
    accelerators: Accelerators | None = key(forms.ACCELERATORS, "Model and number of accelerators.", "V100:1..")


@dataclass(frozen=True, slots=True)
class Reliable:
    """On-demand machines, which are never evicted, held from start to end in addition to the transient ones."""

    machines: int = key(
        forms.MACHINES,
        "How many; if left out, 1 for agileml, which keeps the model there, and 0 for a command.",
        1,
        default=0,
    )
    type: str | None = key(forms.TYPE_NAME, "Their type; the cheapest allowed one if left out.", "c6i.large")


@dataclass(frozen=True, slots=True)
class Resources:
    """What may be rented."""

    clouds: tuple[str, ...] = key(
        ListOf(forms.CLOUD),
        "Where to rent; local is a market that is replayed on this computer, and free. Required, except with engine:"
        " ray.",
        ["local"],
        ["aws", "gcp"],
        default=(),
    )
    machines: Range[int] = key(
        forms.MACHINE_RANGE,
        "Transient machines at one time. Required for agileml; a command always has as many as it has nodes.",
        "4..64",
        default=Range(0),
    )
    reliable: Reliable = key(
        Reliable, "On-demand machines in addition to the transient ones.", {"machines": 1}, default=Reliable(0)
    )
    types: tuple[str, ...] = key(
        ListOf(forms.TYPE_GLOB),
        "Machine types by name or glob; any if left out.",
        ["c6i.2xlarge", "n2-standard-8"],
        default=(),
    )
    needs: Needs = key(
        Needs,
        "Instead of names: what a machine must have.",
        {"vcpus": "8..", "memory_gib": "16.."},
        name="types",
        default=Needs(),
    )
    regions: tuple[str, ...] = key(
        ListOf(forms.REGION, word=ANY),
        "Regions to rent in; all if left out. With several, or any, a command with a checkpoint and a deadline moves to"
        " where spot machines are.",
        ["us-east-1", "us-central1"],
        ANY,
        default=(),
    )
    zones: tuple[str, ...] = key(
        ListOf(forms.ZONE, word=ANY), "Zones to rent in; all if left out.", ["us-east-1a", "us-east-1b"], default=()
    )


@dataclass(frozen=True, slots=True)
class Notify:
    """Where to report how a run ended."""

    webhook: str | None = key(forms.WEBHOOK, "Address that gets a POST request.", "https://example.com/hook")
    heartbeat: str | None = key(
        forms.WEBHOOK,
        "Address of a health check for nights: gets /start, then the address itself, or /fail.",
        "https://hc-ping.com/your-uuid",
    )


@dataclass(frozen=True, slots=True)
class LocalMarket:
    """How the market on this computer is replayed; only with clouds: [local]."""

    speed: float = key(forms.SPEED, "Seconds of market time in one second; 600 if left out.", 600, default=600.0)
    seed: int = key(forms.SEED, "Random seed of evictions without a warning; 0 if left out.", 0, default=0)
    start: int | None = key(forms.MOMENT, "Where in the price history the replay begins.", "2026-01-25T06:00:00Z")
    warning: int = key(
        forms.SPAN, "Market time between eviction warning and eviction; 2m if left out.", "2m", default=2 * MINUTE
    )
    unwarned: float = key(
        forms.SHARE, "Share of evictions that come without a warning; 0.2 if left out.", 0.2, default=0.2
    )


@dataclass(frozen=True, slots=True)
class Image:
    """The image of cloud machines; `auto`, the default, is Ubuntu, with drivers on machines with GPUs.

    The job runs directly on the machine, or in a `container`.
    """

    ami: str | None = key(forms.IMAGE, "On AWS: an image id, or auto.", "ami-0123456789abcdef0")
    gcp: str | None = key(
        forms.IMAGE,
        "On Google Cloud: the path of an image or family, or auto.",
        "projects/my-project/global/images/mine",
    )
    azure: str | None = key(
        forms.IMAGE,
        "On Azure: publisher:offer:sku:version, an image's resource id, or auto.",
        "canonical:ubuntu-24_04-lts:server:latest",
    )
    disk_gib: int | None = key(forms.DISK, "Size of a machine's disk.", 100)
    container: str | None = key(forms.CONTAINER, "Container image in which the job runs.", "ghcr.io/me/train:1")
    login: str | None = key(
        forms.VARIABLE,
        "One of secrets, with USER:PASSWORD for the container's registry; the container does not get it.",
        "REGISTRY_LOGIN",
    )

    def of(self, cloud: str) -> str | None:
        """The image on a cloud; None leaves the choice to its provider."""
        image = {"aws": self.ami, "gcp": self.gcp, "azure": self.azure}.get(cloud)
        return None if image == forms.AUTO else image


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job for spotctl: what to run, on which machines, by when and for how much."""

    name: str = needed(forms.JOB_NAME, "The job's name; a job has one run at a time.", "nightly-recsys")
    program: Training | Command = needed(
        OneOf(_KIND, {ProgramKind.AGILEML: Training, ProgramKind.COMMAND: Command}), ""
    )
    resources: Resources = needed(
        Resources, "What may be rented, and where.", {"clouds": ["local"], "machines": "4..64"}
    )
    workdir: Path = key(
        forms.FOLDER,
        "Folder of the job's code, relative to this file; the file's own folder if left out.",
        ".",
        default=Path(),
    )
    setup: str | None = key(forms.TEXT, "Shell command that prepares each machine.", "pip install -r requirements.txt")
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
        "Data to copy near the machines, by name; $DATA_NAME holds the path.",
        {"ratings": "s3://bucket/ratings/"},
        default={},
    )
    outputs: Mapping[str, str] = key(
        MapOf(forms.PART_NAME, forms.LOCATION),
        "Where results are written. agileml writes `model`, to a local folder if left out; a command finds each path in"
        " $OUTPUT_NAME.",
        {"model": "s3://bucket/models/"},
        default={},
    )
    objective: Objective = key(
        forms.OBJECTIVE,
        "What to optimize; min-cost-slo needs a deadline and makespan-within-budget a budget. min-cost if left out.",
        "min-cost",
        default=Objective.MIN_COST,
    )
    deadline: Within | ByClock | None = key(
        forms.DEADLINE,
        "Latest finish: a time after launch (10h), or the next such time of day (22:00) in the time zone of the"
        " computer that launches the job. On the local market, market time counts.",
        "10h",
        "22:00",
    )
    hours: int | None = key(
        forms.SPAN,
        "How long the job keeps all its machines busy without evictions, if throughputs and stop do not tell.",
        "8h",
    )
    budget: int | None = key(forms.MONEY, "Spending stops before it exceeds this.", "25 USD")
    value_of_time: int | None = key(
        forms.PER_HOUR,
        "What an hour less of run time is worth to you; lookahead and price-capacity pay up to that for speed. If left"
        " out, lookahead uses a usual share of the on-demand cost, and price-capacity the price of its machines.",
        "5 USD/h",
    )
    throughputs: Mapping[str, float] = key(
        MapOf(forms.TYPE_NAME, forms.POSITIVE),
        "Measured work per hour of one machine, by type.",
        {"c6i.2xlarge": 410},
        default={},
    )
    image: Image = key(Image, "Image and disk of cloud machines.", {"disk_gib": 100}, default=Image())
    identity: Mapping[str, str] = key(
        MapOf(forms.RENTED_CLOUD, forms.TEXT),
        "The machines' identity by cloud: instance profile (aws), service account (gcp) or managed identity (azure)."
        " `spotctl doctor --policy` prints the least they need.",
        {"aws": "trainer"},
        default={},
    )
    tags: Mapping[str, str] = key(
        MapOf(forms.TAG_NAME, forms.TAG_VALUE),
        "Labels by which `spotctl report cost` groups costs; cloud machines are tagged with them, too.",
        {"team": "search"},
        default={},
    )
    strategy: str = key(
        forms.STRATEGY, "How machines are chosen, bid for and returned.", "auto", "price-capacity", default=AUTO
    )
    notify: Notify = key(
        Notify, "Where to report how a run ended.", {"webhook": "https://example.com/hook"}, default=Notify()
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
        return isinstance(self.program, Training) and self.program.engine == forms.RAY

    @property
    def is_local(self) -> bool:
        """Whether the job runs on the local market only."""
        return self.resources.clouds == ("local",)

    @property
    def webhook(self) -> str | None:
        """The address to which the end of a run is reported."""
        return self.notify.webhook

    @property
    def heartbeat(self) -> str | None:
        """The address of the health check of nights."""
        return self.notify.heartbeat


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


def check_rents(specs: Sequence[JobSpec]) -> None:
    """Refuses a job that rents nothing where jobs are planned with prices, or share a market."""
    if ray := next((spec for spec in specs if spec.on_ray), None):
        raise BadRequest(
            f"{ray.name}: engine: ray rents nothing, so no prices decide about it; launch the job alone, with spotctl"
            " launch"
        )


def check_names(specs: Sequence[JobSpec]) -> None:
    """Refuses two jobs with one name: plans and runs are kept by name."""
    names = [spec.name for spec in specs]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(f"two of the files describe a job named {double!r}; give each job its own name")
