"""`python -c` of this file in a checkout, with FIRST and LAST: hashes of what random faults in
virtual time lead to.

It uses the checkout's own tests, and takes names from where they are: modules move.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any


def named(name: str, *modules: str) -> Any:  # noqa: ANN401
    """The object of this name in one of the modules, or else in any module below their packages."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    package = importlib.import_module(modules[0].rpartition(".")[0].partition(".pipeline")[0])
    for found in pkgutil.walk_packages(
        package.__path__, f"{package.__name__}.", onerror=lambda _: None
    ):
        if found.name.rpartition(".")[2].startswith("test_"):
            continue
        try:
            return getattr(importlib.import_module(found.name), name)
        except Exception:  # noqa: BLE001 - another module may have it
            continue
    raise SystemExit(f"no module of {package.__name__} has {name}")


def digest(value: object) -> str:
    """A hash of all arrays and numbers in a value, bit for bit, whatever the names of its parts."""
    parts = sorted(_parts(value))
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _parts(value: Any) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, dict):
        for key, one in value.items():
            yield from (f"{key}{part}" for part in _parts(one))
    elif isinstance(value, list | tuple):
        yield from (part for one in value for part in _parts(one))
    elif dataclasses.is_dataclass(value):
        yield from _parts([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif hasattr(value, "tobytes"):
        yield hashlib.sha256(
            repr((value.dtype, value.shape)).encode() + value.tobytes()
        ).hexdigest()
    else:
        yield repr(value)


def main(kind: str, first: int, last: int) -> None:
    """Prints a line for each seed."""
    for seed in range(first, last):
        print(seed, *(training(seed) if kind == "trainings" else pipeline(seed)))  # noqa: T201


def training(seed: int) -> list[object]:
    """The faults that a schedule met, and the model that it ended with."""
    schedule = named("Schedule", "tests.agileml.schedules")(seed)
    ended = schedule.run()
    # Where a simulation is kept with its result, it knows how many messages arrived and how long it
    # took.
    simulation, outcome = ended if isinstance(ended, tuple) else (None, ended)
    met = sorted(f"{target.stage} {target.event} {target.kind}" for target in schedule.met)
    delivered, seconds = (
        (simulation.messages.delivered, simulation.now)
        if simulation
        else (outcome.delivered, outcome.seconds)
    )
    counts = (outcome.clock, outcome.evictions, outcome.failures)
    figures = [repr(one) for one in (*counts, delivered, outcome.loss, seconds)]
    return [digest(arrays(outcome.versions)), *figures, digest(schedule.log), "; ".join(met)]


def arrays(value: Any) -> list[Any]:  # noqa: ANN401
    """All arrays inside of a value."""
    if hasattr(value, "tobytes"):
        return [value]
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return [array for one in inner for array in arrays(one)]


def pipeline(seed: int) -> list[object]:
    """The weights and losses of a pipeline.

    Those of pipedream depend on when plans change, which simulators draw differently: whether they
    are those of one process with the same history of plans.
    """
    place = "tests.agileml.pipeline.run.elastic_schedules"
    plan, optimizer, nodes, faults = named("drawn", place)(seed)
    if plan.scheme == "pipedream":
        return [plan.scheme, named("problem", place)(seed) or "as in one process"]
    train = named("train_simulated", place)
    result = train(
        named("MODELS", place)[plan.tensor], optimizer, plan, nodes, faults=faults, seed=seed
    )
    return [plan.scheme, digest(result.weights), digest(result.losses)]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
