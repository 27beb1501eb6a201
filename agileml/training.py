"""`agileml.train`: a job from a script or a notebook."""

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
from agileml.job import Job, Listener, Trained
from agileml.policies.policy import Policy
from agileml.policies.stage import Thresholds
from agileml.roles.node import JobSettings
from agileml.stopping import Convergence, Stopping
from agileml.trainer import Trainer

ENGINES = {"local": "agileml.engines.local:LocalEngine", "sim": "agileml.engines.sim.job_runner:SimulatedEngine"}
"""Where engines are, by name; loaded when asked for."""

_RUNNING = ("thresholds", "heartbeat_timeout", "checkpoint_every", "stage")
"""Options of how a job runs."""

T = TypeVar("T")


class Options(TypedDict, total=False):
    """What can be set about a job: when it ends (`Stopping`), how it trains (`JobSettings`), how it runs (`Job`)."""

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
    stage: Policy


def train(
    trainer: Trainer | TrainerSource | str,
    nodes: str = "1+3",
    engine: str | Engine = "local",
    *,
    clocks: int | None = None,
    chaos: Chaos | None = None,
    listener: Listener = lambda _: None,
    **options: Unpack[Options],
) -> Trained:
    """Trains on so many reliable + transient nodes until the first stopping criterion holds.

    A trainer is an object, the name of an app, `module:Class`, a file, or one of these with arguments
    (`TrainerSource`). An object goes to the nodes as a copy; classes that a script or notebook defines go with it.
    """
    reliable, transient = parse_nodes(nodes)
    given = cast("Mapping[str, Any]", options)
    _check_names(given)
    job = Job(
        source_of(trainer),
        reliable,
        transient,
        _made(Stopping, {**given, "clocks": clocks}),
        _made(JobSettings, given),
        **{name: given[name] for name in _RUNNING if name in given},
    )
    runner = engine_named(engine) if isinstance(engine, str) else engine
    return runner.run(job, chaos or Chaos(), listener)


def parse_nodes(text: str) -> tuple[int, int]:
    """Reliable and transient nodes from `1+3`."""
    match = re.fullmatch(r"\s*(\d+)\s*\+\s*(\d+)\s*", text, re.ASCII)
    if match is None or not int(match[1]):
        raise BadArgument(
            f"nodes is {text!r}; write reliable+transient, such as 1+3, with at least one reliable node:"
            " it keeps the model when all others are taken"
        )
    return int(match[1]), int(match[2])


def engine_named(name: str) -> Engine:
    """The engine of a name."""
    if name not in ENGINES:
        raise BadArgument(f"no engine is named {name!r}; there are {', '.join(ENGINES)}")
    module, _, attribute = ENGINES[name].partition(":")
    return cast("Engine", getattr(importlib.import_module(module), attribute)())


def source_of(trainer: Trainer | TrainerSource | str) -> TrainerSource:
    """What nodes are told so that each can load the trainer for itself."""
    if isinstance(trainer, TrainerSource):
        return trainer
    if isinstance(trainer, str):
        return TrainerSource(trainer)
    import cloudpickle  # type: ignore[import-untyped]

    name = type(trainer).__name__
    if isinstance(trainer, type):
        raise BadTrainer(f"{trainer.__name__} is a class; give an object of it: {trainer.__name__}(...)")
    check(trainer, name)
    try:
        pickled = cloudpickle.dumps(trainer)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise BadTrainer(
            f"{name} cannot be copied to the nodes ({error}); make what cannot be copied in shards() or init(),"
            " or give TrainerSource('module:Class', {...}), which each node makes for itself"
        ) from error
    return TrainerSource(f"{__name__}:restored", {"pickled": pickled})


def restored(pickled: bytes) -> object:
    """The trainer that `source_of` was given, as a node loads it."""
    return pickle.loads(pickled)  # noqa: S301 - the job's own code, handed over by whoever runs it


def _check_names(options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise BadArgument(f"no option is named {unknown[0]!r}; there are {', '.join(Options.__annotations__)}")


def _made(cls: type[T], options: Mapping[str, Any]) -> T:
    """A settings object from those options that are its own."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in options.items() if name in known})
