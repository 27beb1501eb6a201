"""The program of a job: a trainer or a command, with the keys of a job file that describe
either."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from agileml.apps import BUILT_IN
from spotctl.files.job import forms
from spotctl.files.job.conversions import AUTO
from spotctl.files.job.sections import ListOf, MapOf, key
from spotctl.files.job.values import CPU, RAY, Nodes


@dataclass(frozen=True, slots=True)
class Stop:
    """When a training ends: as soon as one of these criteria holds."""

    clocks: int | None = key(
        forms.CLOCKS, "Stop after this many clocks (passes over the data).", 2000
    )
    span: int | None = key(
        forms.MINUTES, "Stop after this many minutes of training.", 90, name="minutes"
    )
    loss: float | None = key(forms.FINITE, "Stop when the loss is at most this.", 0.15)
    converged: float | None = key(
        forms.TOLERANCE, "Stop when five clocks lower the loss by less than this share.", 0.02
    )


@dataclass(frozen=True, slots=True)
class SlowMachines:
    """Measures against machines that are slower than others."""

    reassign: bool = key(
        forms.FLAG, "Workers that fall behind lend work to faster ones.", True, default=False
    )
    backup_workers: bool | int | str = key(
        forms.BACKUP_WORKERS,
        "auto: clocks end without the slowest workers while that clearly pays, if the updates are "
        "gradients.",
        "auto",
        default=False,
    )
    balance_servers: bool = key(
        forms.FLAG, "Parameters move away from servers that are slow.", True, default=False
    )


@dataclass(frozen=True, slots=True)
class ElasticNodes:
    """How a split training meets the loss of nodes."""

    nodes: Nodes | None = key(
        forms.NODES,
        "Devices that train the model, from the fewest to the most: machines with fewer are left "
        "out, and no more than the most are used.",
        "2..8",
        4,
    )
    backup: str = key(
        forms.WORD_AUTO,
        "Where copies of the layers are kept: auto, at a neighbor in the pipeline, and every ten "
        "updates with the process that starts the nodes.",
        AUTO,
        default=AUTO,
    )
    every: int = key(
        forms.CLOCKS, "Updates between two of these copies; 1 if left out.", 5, default=1
    )


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a model is split over devices: those of a command's machines, or the machines of a
    training.
    """

    profile: str = key(
        forms.TEXT,
        "Profile of the model, in workdir, as `spotctl lab parallel profile` writes it; "
        "profile.json if left out.",
        "profile.json",
        default="profile.json",
    )
    device: str = key(
        forms.DEVICE,
        "What the profile was measured on: an accelerator, or cpu for a core; cpu if left out. "
        "Other accelerators are estimated from it.",
        "V100",
        default=CPU,
    )
    updates: int | None = key(
        forms.CLOCKS, "How many updates the job makes, from which its length follows.", 5000
    )
    batch: int | None = key(
        forms.AUTO_OR_COUNT, "Samples per update; 8 microbatches if left out.", 512, "auto"
    )
    microbatch: int | None = key(
        forms.AUTO_OR_COUNT,
        "Samples per microbatch: a profiled size; the largest if left out.",
        "auto",
        4,
    )
    scheme: str = key(
        forms.SCHEME,
        "How microbatches flow through the pipeline stages; auto chooses among those that delay no "
        "gradient.",
        AUTO,
        "2bw",
        default=AUTO,
    )
    stages: int | None = key(forms.AUTO_OR_COUNT, "Pipeline stages.", "auto", 4)
    replicas: int | None = key(forms.AUTO_OR_COUNT, "Number of parallel pipelines.", "auto", 2)
    chunks: int | None = key(
        forms.AUTO_OR_COUNT, "Chunks per device of the interleaved scheme.", "auto", 2
    )
    tensor: int | None = key(
        forms.AUTO_OR_TENSOR,
        "Devices of a machine that share each layer; its parts must be a multiple.",
        "auto",
        2,
    )
    recompute: bool | None = key(
        forms.AUTO_OR_FLAG,
        "Whether activations are computed again in the backward pass.",
        "auto",
        True,
    )
    allow_delay: int = key(
        forms.DELAY,
        "With scheme: auto: updates that a gradient may miss; 0 if left out, which keeps the usual "
        "semantics.",
        1,
        default=0,
    )
    elastic: ElasticNodes = key(
        ElasticNodes,
        "On how many devices the model may be trained, and how it gets over the loss of some.",
        {"nodes": "2..8", "every": 5},
        default=ElasticNodes(),
    )
    optimizer: str = key(
        forms.OPTIMIZER,
        "The optimizer, whose state takes memory; adam if left out.",
        "adam",
        default="adam",
    )


@dataclass(frozen=True, slots=True)
class Training:
    """An AgileML trainer."""

    app: str = key(
        forms.APP,
        f"For agileml: the trainer, built in ({', '.join(BUILT_IN)}) or your own in workdir"
        " (module:Class, FILE.py:NAME).",
        "mf",
        "apps.recsys:Recsys",
        is_needed=True,
    )
    stop: Stop = key(
        Stop,
        "For agileml: when the training ends. With trainer, it may be left out: the framework says "
        "how many steps there are.",
        {"clocks": 2000},
        {"converged": 0.02},
        is_needed=True,
    )
    args: Mapping[str, object] = key(
        MapOf(forms.KEYWORD, forms.ARGUMENT),
        "For agileml: arguments of the trainer.",
        {"rank": 64},
        default={},
    )
    stragglers: SlowMachines = key(
        SlowMachines,
        "For agileml: how machines that are slower than others are handled.",
        {"reassign": True, "backup_workers": "auto"},
        default=SlowMachines(),
    )
    wire: str | None = key(
        forms.WIRE,
        "For agileml: precision of parameters and updates when they are sent; bf16 and fp16 take "
        "half the bytes. If left out, as the trainer declares.",
        "bf16",
        "fp16",
    )
    engine: str | None = key(
        forms.ENGINE,
        "For agileml: ray trains on a Ray cluster that is there already, and nothing is rented. If "
        "left out, machines are rented.",
        RAY,
    )
    address: str | None = key(
        forms.RAY_ADDRESS,
        "With engine: ray: the cluster; auto on one of its machines. If left out: RAY_ADDRESS, or "
        "a cluster on this computer that ends with the run.",
        "10.0.0.4:6379",
        AUTO,
    )
    trainer: Mapping[str, str] = key(
        MapOf(forms.FRAMEWORK, forms.APP),
        "For agileml, in place of app: a function that makes what a framework trains: a "
        "LightningModule with its data and the Trainer's arguments, or a Hugging Face Trainer.",
        {"lightning": "train:make"},
        {"transformers": "train.py:make"},
        default={},
    )
    parallel_auto: str | None = key(
        forms.WORD_AUTO,
        "For agileml: auto splits the model over the machines; app is then a model, as for "
        "`spotctl lab parallel train`, and a clock is an update.",
        AUTO,
        name="parallel",
    )
    parallel_as_given: Parallel | None = key(
        Parallel,
        "Or a mapping that says how the model is split.",
        {"batch": 512, "scheme": "flush"},
        name="parallel",
    )

    @property
    def parallel(self) -> Parallel | None:
        """How the model is split over the machines; None for a trainer."""
        return Parallel() if self.parallel_auto else self.parallel_as_given


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a command keeps its checkpoint, and how often it writes one."""

    path: str = key(
        forms.LOCATION, "A folder that outlives every machine.", "s3://bucket/ckpt/", is_needed=True
    )
    every: int | None = key(
        forms.EVERY,
        "Time between checkpoints; auto chooses it from the eviction rate and the measured cost of "
        "a checkpoint.",
        "auto",
        "15m",
    )
    size: int | None = key(
        forms.SIZE,
        "Its size, for the cost of moving it to another region; measured as soon as one is "
        "written, if left out.",
        "50GB",
    )
    takes: int | None = key(
        forms.SPAN,
        "How long it takes; seen by launch --rehearse, and measured as soon as one is written, if "
        "left out.",
        "20s",
    )
    keep: tuple[str, ...] = key(
        ListOf(forms.KEPT_PLACE),
        "Files and folders in the job's folder that the program saves to, also as globs; each "
        "machine gets their newest content before the program starts.",
        ["checkpoints/", "model.npz"],
        default=(),
    )


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command that runs on each node. All nodes start and move together, and stop together
    unless `nodes` is a range: then the command starts again on those that remain."""

    spellings: ClassVar = {"num_nodes": ("nodes",)}

    run: str = key(
        forms.TEXT,
        "For a command: what the shell runs on each node. SPOTCTL_* variables hold node names, "
        "ranks and addresses.",
        "torchrun train.py --resume",
        is_needed=True,
    )
    nodes: Nodes = key(
        forms.NODES,
        "For a command: number of nodes; 1 if left out. With a range, it continues with the nodes "
        "that remain after an eviction, and grows again when they are replaced.",
        2,
        "2..4",
        default=Nodes(1, 1),
    )
    checkpoint: Checkpoint | None = key(
        Checkpoint,
        "For a command: where its checkpoint is.",
        {"path": "s3://bucket/ckpt/", "every": "auto"},
    )
    retries: Mapping[str, int] = key(
        MapOf(forms.FAILURE, forms.RETRIES),
        "For a command: how often it is tried again, by its exit status (137: killed, often for "
        "lack of memory), or"
        " after a failed setup. If left out: a setup once, on another machine; a command that "
        "exits with 75, which asks to be moved, 4 times in a row.",
        {"137": 2, "setup": 1},
        default={},
        misplaced="remove it: a training replaces nodes that fail, and ends once they fail again "
        "in the same way",
    )
    parallel_auto: str | None = key(
        forms.WORD_AUTO,
        "For a command: auto splits its model over the devices of its machines; $SPOTCTL_PARALLEL "
        "holds the plan.",
        AUTO,
        name="parallel",
    )
    parallel_as_given: Parallel | None = key(
        Parallel,
        "Or a mapping that says how the model is split.",
        {"batch": 512, "scheme": "flush"},
        name="parallel",
    )

    @property
    def parallel(self) -> Parallel | None:
        """How the model is split; None if the job does not ask for that."""
        return Parallel() if self.parallel_auto else self.parallel_as_given
