"""`agileml.train`: runs a job from a script or a notebook."""

import importlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from numbers import Real
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

import numpy as np

from agileml.apps.registry import TrainerSource, check
from agileml.core.events import Iteration
from agileml.engines.base import Engine
from agileml.engines.chaos import QUIET, Chaos, FaultSchedule
from agileml.errors import BadArgument, BadTrainer
from agileml.job import Convergence, Listener, Stopping, Trained, TrainingJob
from agileml.policies.stage import Thresholds, TrainingPolicy, stage_policy
from agileml.policies.stragglers import Stragglers
from agileml.roles.node import JobSettings
from agileml.runtime.output import Output, Printed, show
from agileml.trainer import Trainer
from agileml.user_code import copy_of, described, original

ENGINES = {
    "local": "agileml.engines.local:LocalEngine",
    "ray": "agileml.engines.ray:RayEngine",
    "sim": "agileml.engines.sim:SimulatedEngine",
}
"""Engines by name, imported on use."""

_JOB_OPTIONS = (
    "thresholds",
    "heartbeat_timeout",
    "hang_timeout",
    "startup_timeout",
    "checkpoint_every",
    "stage",
)
"""Options that are fields of `TrainingJob`."""

T = TypeVar("T")


class TrainOptions(TypedDict, total=False):
    """Options of a job: when it ends (`Stopping`), how it trains (`JobSettings`), how and where it
    runs.
    """

    address: str | None
    seconds: float
    loss: float
    converged: Convergence | float
    seed: int
    partitions: int | None
    deterministic: bool
    slack: int | None
    loss_sample: int
    keeps: int
    frame_bytes: int
    stragglers: Stragglers | str | Mapping[str, Any]
    wire: str | None
    thresholds: Thresholds
    heartbeat_timeout: float
    hang_timeout: float
    startup_timeout: float
    checkpoint_every: int
    stage: TrainingPolicy | Literal["auto", 1, 2, 3]


def train(
    trainer: Trainer | TrainerSource | str,
    nodes: str = "1+3",
    engine: str | Engine = "local",
    *,
    clocks: int | None = None,
    chaos: Chaos | str | None = None,
    listener: Listener | None = None,
    output: Output = show,
    **options: Unpack[TrainOptions],
) -> Trained:
    """Trains until the first stopping criterion is met. `nodes` is reliable+transient, such as
    `1+3`.

    A trainer with `clocks` of its own needs no criterion.

    A trainer is an object, the name of an app, `module:Class`, a file, or one of these with
    arguments (`TrainerSource`). Nodes receive a copy of an object, with the classes that the script
    or notebook defines. `listener` is called with each finished clock. `chaos` is faults to inject,
    such as `at clock 20 evict half`. `address` is that of a Ray cluster, for the engine `ray`; see
    `RayEngine`. `output` is called with what nodes print; by default it goes to standard error,
    with the name of the node. `stage` is `auto`, the number of a stage, or a policy. `stragglers`
    names measures against slow machines, separated by commas: with `reassign`, workers that fall
    behind lend work to faster ones; with `backup-workers`, clocks end without the slowest workers;
    with `balance`, partitions leave slow servers. A mapping such as `{"reassign": True,
    "backup_workers": "auto"}` says the same. With `wire` `bf16` or `fp16`, what the trainer reads
    and pushes travels in 16 bits. Invalid arguments raise BadArgument before anything starts.
    """
    reliable, transient = parse_nodes(nodes)
    given = _plain(cast("Mapping[str, Any]", options))
    unknown = sorted(set(given) - set(TrainOptions.__annotations__))
    if unknown:
        raise BadArgument(
            f"unknown option {unknown[0]!r}; choose from {', '.join(TrainOptions.__annotations__)}"
        )
    if listener is not None and not callable(listener):
        raise BadArgument(
            f"listener is {listener!r}; it must be a function that is called with each finished "
            "clock"
        )
    if not callable(output):
        raise BadArgument(
            f"output is {output!r}; it must be a function that is called with what nodes print"
        )

    if clocks is None and not given.keys() & {"seconds", "loss", "converged"}:
        # Those of a framework's training, which has an end of its own.
        clocks = getattr(trainer, "clocks", None)

    settings = _make(JobSettings, given)
    faults = _chaos(chaos, settings.seed)
    job = TrainingJob(
        source_of(trainer),
        reliable,
        transient,
        _make(Stopping, _plain({**given, "clocks": clocks})),
        settings,
        slowdowns=faults.slowdowns,
        **{name: given[name] for name in _JOB_OPTIONS if name in given},
    )

    losses = list[float | None]()

    def finished(iteration: Iteration) -> None:
        losses.append(iteration.loss)
        if listener is not None:
            listener(iteration)

    script = FaultSchedule(faults) if faults.rules else QUIET
    trained = engine_of(engine, given.get("address")).run(job, script, finished, output)
    if job.source.has_loop:
        # What follows the loop of a script runs in this process, with the trained model.
        try:
            cast("Any", job.source.load()).finish(trained.model)
        except Exception as error:  # noqa: BLE001 - the model is trained all the same
            output(Printed("job", f"the code after the loop failed: {described(error)}"))
    return replace(trained, history=tuple(losses))


def parse_nodes(text: str) -> tuple[int, int]:
    """Parses `1+3` as one reliable and three transient nodes."""
    match = (
        re.fullmatch(r"\s*(\d+)\s*\+\s*(\d+)\s*", text, re.ASCII) if isinstance(text, str) else None
    )
    if match is None or not int(match[1]) + int(match[2]):
        raise BadArgument(
            f"nodes is {text!r}; write reliable+transient with at least one node: 1+3, whose "
            "reliable node keeps the"
            " model when all others are evicted, or 0+3, which then continues from the last "
            "checkpoint"
        )

    return int(match[1]), int(match[2])


def engine_of(engine: str | Engine, address: str | None = None) -> Engine:
    """The engine, or a new one of this name."""
    if address is not None and engine != "ray":
        raise BadArgument(
            f"address is {address!r}, but the engine is {engine!r}; only 'ray' takes an address"
        )
    if callable(getattr(engine, "run", None)):
        return cast("Engine", engine)
    if not isinstance(engine, str) or engine not in ENGINES:
        raise BadArgument(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")

    module, _, attribute = ENGINES[engine].partition(":")
    made = getattr(importlib.import_module(module), attribute)
    return cast("Engine", made(address) if address else made())


def source_of(trainer: Trainer | TrainerSource | str) -> TrainerSource:
    """A description from which every node can load the trainer."""
    if isinstance(trainer, TrainerSource):
        return trainer
    if isinstance(trainer, str):
        return TrainerSource(trainer)

    name = type(trainer).__name__
    if isinstance(trainer, type):
        raise BadTrainer(f"{trainer.__name__} is a class; pass an object: {trainer.__name__}(...)")

    check(trainer, name)
    try:
        copied = copy_of(trainer)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise BadTrainer(
            f"{name} cannot be copied to the nodes ({error}); create what cannot be copied in "
            "shards() or init(),"
            " or pass TrainerSource('module:Class', {...}), from which each node creates its own"
        ) from error

    return TrainerSource(f"{original.__module__}:{original.__name__}", copied)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with Python's own numbers instead of numpy's, and with policies instead of their
    short forms.
    """
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in options.items()
    }
    if isinstance(plain.get("converged"), Real) and not isinstance(plain["converged"], bool):
        plain["converged"] = Convergence(plain["converged"])
    if isinstance(plain.get("stragglers"), str | Mapping):
        plain["stragglers"] = Stragglers.of(plain["stragglers"])
    if plain.get("stage") is not None:
        plain["stage"] = stage_policy(plain["stage"])

    return plain


def _chaos(chaos: object, seed: int) -> Chaos:
    if isinstance(chaos, str):
        return Chaos.parse(chaos, seed)
    if chaos is None or isinstance(chaos, Chaos):
        return chaos or Chaos()
    raise BadArgument(
        f"chaos is {chaos!r}; it must be a text such as 'at clock 20 evict half', or a Chaos"
    )


def _make(cls: type[T], options: Mapping[str, Any]) -> T:
    """Creates a settings object from the options that are its fields."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in options.items() if name in known})
