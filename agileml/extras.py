"""PyTorch, which is an optional dependency."""

from typing import Any

from agileml.errors import AgileMLError

NEEDS_TORCH = "needs PyTorch: pip install 'spotctl[torch]'"


def torch_module() -> Any:  # noqa: ANN401  # a module, which may be missing
    """PyTorch, or an error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise AgileMLError(f"this model {NEEDS_TORCH}") from None
    return torch
