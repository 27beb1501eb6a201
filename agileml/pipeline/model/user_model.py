"""Finds the model that a user names: `mlp`, `transformer`, or `FILE.py:FUNCTION`."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from agileml.errors import BadArgument, TrainerFailed
from agileml.pipeline.model.base import PipelineModel
from agileml.pipeline.model.builtin import BUILT_IN

ModelFactory = Callable[[int], PipelineModel]
"""Makes the model for a number of samples per microbatch."""


def model_factory(target: str) -> ModelFactory:
    if target in BUILT_IN:
        return BUILT_IN[target]
    name, colon, function = target.rpartition(":")
    path = Path(name)
    if not colon or path.suffix != ".py" or not path.is_file():
        raise BadArgument(f"model {target!r}: name {', '.join(BUILT_IN)}, or a function in a file: FILE.py:FUNCTION")
    build = getattr(_import_file(path), function, None)
    if not callable(build):
        raise BadArgument(f"model {target!r}: {path} has no function {function!r}")
    return _checked_factory(build, target)


def _import_file(path: Path) -> object:
    name = f"pipeline_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TrainerFailed(f"{path}: {type(error).__name__}: {error}") from error
    # Workers do not have this module: its code travels with the model.
    cloudpickle.register_pickle_by_value(module)
    return module


def _checked_factory(function: Callable[[int], object], target: str) -> ModelFactory:
    def make(microbatch: int) -> PipelineModel:
        try:
            model = function(microbatch)
        except Exception as error:
            raise TrainerFailed(f"model {target}: {type(error).__name__}: {error}") from error
        if not isinstance(model, PipelineModel) or not model.layers:
            raise BadArgument(
                f"model {target}: returned {type(model).__name__}; it must return a PipelineModel with layers"
            )
        return model

    return make
