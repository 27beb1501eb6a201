"""Checks of settings, with one clear line for a value that cannot work, and of PyTorch, which is
optional.
"""

from math import inf, isfinite
from numbers import Integral, Real
from typing import Any

from agileml.errors import AgileMLError, BadArgument


def check_whole(name: str, value: object, least: int, most: float = inf) -> None:
    """Raises BadArgument unless the value is a whole number from `least` to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        raise BadArgument(f"{name} is {value!r}; it must be a whole number {_range(least, most)}")


def check_number(
    name: str,
    value: object,
    least: float,
    most: float = inf,
    *,
    above: bool = False,
    finite: bool = True,
) -> None:
    """Raises BadArgument unless the value is a number from `least` (`above`: more than that) to
    `most`.
    """
    fits = False
    if not isinstance(value, bool) and isinstance(value, Real):
        number = float(value)
        within = least <= number <= most and not (above and number == least)
        fits = within and (isfinite(number) or not finite)

    if not fits:
        bounds = f"above {least:,g}" if above else _range(least, most)
        raise BadArgument(
            f"{name} is {value!r}; it must be a{' finite' * finite} number {bounds}".rstrip()
        )


def check_flag(name: str, value: object) -> None:
    """Raises BadArgument unless the value is True or False."""
    if not isinstance(value, bool):
        raise BadArgument(f"{name} is {value!r}; it must be True or False")


def _range(least: float, most: float) -> str:
    if most < inf:
        return f"from {least:,g} to {most:,g}"
    if least == -inf:
        return ""
    return f"of at least {least:,g}"


NEEDS_TORCH = "needs PyTorch: pip install 'spotctl[torch]'"


def torch_module() -> Any:  # noqa: ANN401  # a module, which may be missing
    """PyTorch, or an error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise AgileMLError(f"this model {NEEDS_TORCH}") from None
    return torch
