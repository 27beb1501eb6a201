"""Copies of a caller's objects for the nodes of a job. They hold bytecode, so they need the Python that made them."""

import pickle
import sys
from typing import Any

from agileml.errors import BadTrainer

_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def copy_of(value: object) -> dict[str, Any]:
    """The arguments of `original` that bring the object back in another process."""
    import cloudpickle

    return {"pickled": cloudpickle.dumps(value), "python": _HERE}


def original(pickled: bytes, python: str = _HERE) -> object:
    """The object of a copy. BadTrainer: another Python made the copy."""
    if python != _HERE:
        raise BadTrainer(
            f"the trainer was copied by Python {python}, and this node runs {_HERE}: pass"
            " TrainerSource('module:Class', {...}), from which each node creates its own, or use the same Python"
        )
    return pickle.loads(pickled)  # noqa: S301 - the job's own code, from the process that runs it
