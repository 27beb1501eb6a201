"""`TorchModule`, `Elastic` and frameworks' trainings: data-parallel on the elastic parameter
server.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agileml.torch.lightning import from_lightning
from agileml.torch.row_optimizers import StepEvery
from agileml.torch.trainer import TorchModule
from agileml.torch.transformers import from_transformers

if TYPE_CHECKING:
    from agileml.torch.elastic import Elastic
    from agileml.torch.plain import plain_training

__all__ = [
    "Elastic",
    "StepEvery",
    "TorchModule",
    "from_lightning",
    "from_transformers",
    "plain_training",
]

_ON_USE = {"Elastic": "elastic", "plain_training": "plain"}
"""Names by module that need PyTorch, which takes seconds to import."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the module has
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ON_USE[name]}"), name)
