"""Option values with several parts."""

from math import isfinite

from spotctl.home.errors import BadRequest


def names(text: str) -> tuple[str, ...]:
    """The distinct names of a comma-separated list.

    >>> names("proteus, bound,proteus")
    ('proteus', 'bound')
    """
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(option: str, text: str, example: str) -> tuple[float, ...]:
    """The distinct numbers of a comma-separated list."""
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise BadRequest(f"{option} {text!r} is not a list of numbers (write {example})") from None


def amounts(option: str, text: str, example: str) -> dict[str, float]:
    """Reads `name=amount,name=amount`."""
    read: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        try:
            value = float(amount)
        except ValueError:
            value = float("nan")
        if not (name and equals and isfinite(value) and value >= 0) or name in read:
            raise BadRequest(
                f"{option} {text!r}: {part.strip()!r} is not TYPE=NUMBER (write {example}, each type once)"
            )
        read[name] = value
    return read
