"""`agileml.train`: runs a job from a script or a notebook."""

from __future__ import annotations

import importlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypedDict, TypeVar, Unpack, cast

from agileml.apps.registry import TrainerSource, check
from agileml.engines.base import Engine
from agileml.engines.chaos import Chaos
from agileml.errors import BadArgument, BadTrainer
from agileml.job import Listener, Trained, TrainingJob
from agileml.policies.policy import TrainingPolicy
from agileml.policies.stage import Thresholds
from agileml.roles.node import JobSettings
from agileml.stopping import Convergence, Stopping
from agileml.trainer import Trainer

ENGINES = {"local": "agileml.engines.local:LocalEngine", "sim": "agileml.engines.sim:SimulatedEngine"}
"""Engines by name, imported on use."""

_JOB_OPTIONS = ("thresholds", "heartbeat_timeout", "checkpoint_every", "stage")
"""Options that are fields of `TrainingJob`."""

T = TypeVar("T")


class TrainOptions(TypedDict, total=False):
    """Options of a job: when it ends (`Stopping`), how it trains (`JobSettings`), how it runs (`TrainingJob`)."""

    seconds: float
    loss: float
    converged: Convergence
    seed: int
    partitions: int
    deterministic: bool
    slack: int | None
    loss_sample: int
    keeps: int
    thresholds: Thresholds
    heartbeat_timeout: float
    checkpoint_every: int
    stage: TrainingPolicy


def train(
    trainer: Trainer | TrainerSource | str,
    nodes: str = "1+3",
    engine: str | Engine = "local",
    *,
    clocks: int | None = None,
    chaos: Chaos | None = None,
    listener: Listener = lambda _: None,
    **options: Unpack[TrainOptions],
) -> Trained:
    """Trains until the first stopping criterion is met. `nodes` is reliable+transient, such as `1+3`.

    A trainer is an object, the name of an app, `module:Class`, a file, or one of these with arguments
    (`TrainerSource`). Nodes receive a copy of an object, with the classes that the script or notebook defines.
    `listener` is called with each finished clock.
    """
    reliable, transient = parse_nodes(nodes)
    given = cast("Mapping[str, Any]", options)
    _check_names(given)
    job = TrainingJob(
        source_of(trainer),
        reliable,
        transient,
        _made(Stopping, {**given, "clocks": clocks}),
        _made(JobSettings, given),
        **{name: given[name] for name in _JOB_OPTIONS if name in given},
    )
    runner = engine_named(engine) if isinstance(engine, str) else engine
    return runner.run(job, chaos or Chaos(), listener)


def parse_nodes(text: str) -> tuple[int, int]:
    """Parses `1+3` as one reliable and three transient nodes."""
    match = re.fullmatch(r"\s*(\d+)\s*\+\s*(\d+)\s*", text, re.ASCII)
    if match is None or not int(match[1]):
        raise BadArgument(
            f"nodes is {text!r}; write reliable+transient, such as 1+3, with at least one reliable node:"
            " it keeps the model when all others are evicted"
        )
    return int(match[1]), int(match[2])


def engine_named(name: str) -> Engine:
    """Creates the engine of this name."""
    if name not in ENGINES:
        raise BadArgument(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    module, _, attribute = ENGINES[name].partition(":")
    return cast("Engine", getattr(importlib.import_module(module), attribute)())


def source_of(trainer: Trainer | TrainerSource | str) -> TrainerSource:
    """A description from which every node can load the trainer."""
    if isinstance(trainer, TrainerSource):
        return trainer
    if isinstance(trainer, str):
        return TrainerSource(trainer)
    import cloudpickle  # type: ignore[import-untyped]

    name = type(trainer).__name__
    if isinstance(trainer, type):
        raise BadTrainer(f"{trainer.__name__} is a class; pass an object: {trainer.__name__}(...)")
    check(trainer, name)
    try:
        pickled = cloudpickle.dumps(trainer)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise BadTrainer(
            f"{name} cannot be copied to the nodes ({error}); create what cannot be copied in shards() or init(),"
            " or pass TrainerSource('module:Class', {...}), from which each node creates its own"
        ) from error
    return TrainerSource(f"{__name__}:restored", {"pickled": pickled})


def restored(pickled: bytes) -> object:
    """Loads, on a node, a trainer that was passed to `source_of`."""
    return pickle.loads(pickled)  # noqa: S301 - the job's own code, from the process that runs it


def _check_names(options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - set(TrainOptions.__annotations__))
    if unknown:
        raise BadArgument(f"unknown option {unknown[0]!r}; choose from {', '.join(TrainOptions.__annotations__)}")


def _made(cls: type[T], options: Mapping[str, Any]) -> T:
    """Creates a settings object from the options that are its fields."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in options.items() if name in known})
