"""How the values of a job.yaml are written: each is read from what YAML made of it, and written as it would be read.

A value that cannot be read raises ValueError with words that go on after the value: "has no unit". The patterns are
also the editors': no value that is read falls outside its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from difflib import get_close_matches
from math import isfinite

from bidbrain.strategies.names import NAMES
from pricing_data.errors import BadInput
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, format_usd, parse_duration, parse_time
from spotctl.files.job.spec import Accelerators, ByClock, Number, Range, Within

_DIGITS = r"[0-9]{1,9}"
_DECIMAL = rf"{_DIGITS}(\.[0-9]{{1,9}})?"
SPAN = r"[0-9]{1,9}(\.[0-9]{1,6})? ?[smhdw]"
CLOCK = r"([01]?[0-9]|2[0-3]):[0-5][0-9]"
MONEY = rf"{_DECIMAL} ?USD"
WHOLE_RANGE = rf"{_DIGITS}|{_DIGITS}\.\.({_DIGITS})?|\.\.{_DIGITS}"
RANGE = rf"{_DECIMAL}|{_DECIMAL}\.\.({_DECIMAL})?|\.\.{_DECIMAL}"
ACCELERATORS = rf"[A-Za-z][A-Za-z0-9-]*(:({WHOLE_RANGE}))?"
LOCATION = r"(s3|gs|az)://[^/\s]\S*|file:///\S(.*\S)?|(?!\w+://)\S(.*\S)?"
OURS = "SPOTCTL_"
"""Variables that begin with this are set by spotctl on every machine."""
VARIABLE = rf"(?!{OURS})[A-Za-z_][A-Za-z0-9_]*"

_ARGUMENTS = {"fixed-bid": rf":{_DECIMAL}", "price-capacity": r"(:[1-9][0-9]{0,3})?", "lookahead": rf"(:{_DECIMAL})?"}
STRATEGIES = {name: _ARGUMENTS.get(name, "") for name in ("auto", *NAMES)}
"""Names of strategies, and the pattern of the argument that each takes."""
STRATEGY = "|".join(name.replace("+", r"\+") + argument for name, argument in STRATEGIES.items())


def text(written: object) -> str:
    """A text that says something."""
    if not isinstance(written, str):
        raise ValueError("is not a text")
    if not written.strip():
        raise ValueError("says nothing")
    return written


def whole(written: object) -> int:
    """A whole number."""
    if isinstance(written, bool) or not isinstance(written, int):
        raise ValueError("is not a whole number" + _quoted(written))
    return written


def number(written: object) -> float:
    """A finite number."""
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ValueError("is not a number" + _quoted(written))
    if not isfinite(written):
        raise ValueError("is not finite")
    return float(written)


def fitting(written: object, pattern: str) -> str:
    """A text that has a form."""
    given = text(written)
    if not re.fullmatch(pattern, given):
        raise ValueError("does not fit")
    return given


def choice(written: object, names: Iterable[str]) -> str:
    """One of some names."""
    given, known = text(written), list(names)
    if given not in known:
        raise ValueError("is none of them" + meant(given, known))
    return given


def meant(given: str, known: Iterable[str]) -> str:
    """The name that was probably meant, as a question; nothing if none is near."""
    near = get_close_matches(given, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def span(written: object) -> int:
    """Microseconds of `90m`, `10h`, `2d`."""
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(SPAN, given):
        unit = re.fullmatch(r"[0-9.]+ ?([A-Za-z]+)", given)
        raise ValueError(f"has the unknown unit {unit[1]}" if unit else "is no span of time")
    try:
        return parse_duration(given)
    except BadInput:
        raise ValueError("is 0, or longer than a hundred years") from None


def span_text(micros: int) -> str:
    """A span in the largest unit of which it has a whole number, or else in seconds.

    >>> span_text(90 * MINUTE), span_text(DAY), span_text(1_500_000)
    ('90m', '1d', '1.5s')
    """
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        if micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{Decimal(micros) / SECOND:f}s"


def deadline(written: object) -> Within | ByClock:
    """A span after the launch, or a time of day."""
    if isinstance(written, str) and re.fullmatch(CLOCK, written):
        hour, _, minute = written.partition(":")
        return ByClock(int(hour), int(minute))
    if isinstance(written, str) and ":" in written:
        raise ValueError("is no time of day")
    return Within(span(written))


def deadline_text(due: Within | ByClock) -> str:
    """A deadline as it is written."""
    return span_text(due.span) if isinstance(due, Within) else f"{due.hour:02}:{due.minute:02}"


def money(written: object) -> int:
    """Nano-dollars of `25 USD`."""
    given = _with_unit(written, "has no currency")
    if not re.fullmatch(MONEY, given):
        raise ValueError("is not in USD" if re.fullmatch(rf"{_DECIMAL} ?[A-Za-z]+", given) else "is no amount")
    nanos = int(Decimal(given.removesuffix("USD").strip()) * NANOS_PER_DOLLAR)
    if not nanos:
        raise ValueError("is not above 0")
    return nanos


def money_text(nanos: int) -> str:
    """An amount as it is written."""
    return f"{format_usd(nanos)} USD"


def whole_range(written: object, least: int = 1) -> Range[int]:
    """`8`, `4..16`, `8..` or `..16`, which begins at `least`."""
    low, high = _ends(written, WHOLE_RANGE)
    found = Range(least if low is None else int(low), None if high is None else int(high))
    if found.least < least:
        raise ValueError(f"begins below {least}")
    return _ordered(found)


def decimal_range(written: object) -> Range[float]:
    """The same of decimal numbers, from 0 on."""
    low, high = _ends(written, RANGE)
    return _ordered(Range(float(low or 0), None if high is None else float(high)))


def range_text(found: Range[int] | Range[float]) -> str:
    """A range as it is written, without exponents.

    >>> range_text(Range(4, 64)), range_text(Range(7.5)), range_text(Range(8, 8))
    ('4..64', '7.5..', '8')
    """
    least, most = (None if end is None else f"{Decimal(str(end)):f}" for end in (found.least, found.most))
    return f"{least}" if least == most else f"{least}..{most or ''}"


def accelerators(written: object) -> Accelerators:
    """`V100`, `V100:4` or `V100:1..8`: a model, and how many of it a machine has."""
    given = text(written)
    if not re.fullmatch(ACCELERATORS, given):
        raise ValueError("is no model with a number")
    model, colon, count = given.partition(":")
    return Accelerators(model, whole_range(count) if colon else Range(1))


def accelerators_text(found: Accelerators) -> str:
    """Accelerators as they are written."""
    return f"{found.model}:{range_text(found.count)}"


def variable(written: object) -> str:
    """The name of an environment variable that is not ours."""
    if text(written).startswith(OURS):
        raise ValueError(f"begins with {OURS}, which spotctl sets itself")
    return fitting(written, VARIABLE)


def variable_value(written: object) -> str:
    """What a variable is set to. Of numbers only those are taken that have one way of being written."""
    if isinstance(written, bool):
        return "true" if written else "false"
    if isinstance(written, float):
        raise ValueError("may arrive written otherwise")
    if isinstance(written, str | int):
        return str(written)
    raise ValueError("is not a text")


def argument(written: object, levels: int = 10) -> object:
    """What a trainer is told: anything that JSON can hold."""
    if not levels:
        raise ValueError("is nested too deeply")
    if isinstance(written, dict):
        if not all(isinstance(key, str) for key in written):
            raise ValueError("has a key that is not a text")
        return {key: argument(value, levels - 1) for key, value in written.items()}
    if isinstance(written, list):
        return [argument(value, levels - 1) for value in written]
    if isinstance(written, float) and not isfinite(written):
        raise ValueError("is not finite")
    return written


def moment(written: object) -> int:
    """Microseconds UTC of an ISO 8601 time."""
    try:
        return parse_time(text(written))
    except BadInput:
        raise ValueError("is no time of the years 2008 to 2099") from None


def strategy(written: object) -> str:
    """A strategy's name, with its argument where it takes one."""
    given = text(written)
    name, colon, argument = given.partition(":")
    if re.fullmatch(STRATEGY, given) and (name != "fixed-bid" or Decimal(argument)):
        return given
    if name not in STRATEGIES:
        raise ValueError("is none of them" + meant(name, STRATEGIES))
    raise ValueError("has an argument that does not fit" if colon else "lacks its argument")


def _quoted(written: object) -> str:
    return " (it stands in quotes)" if isinstance(written, str) and re.fullmatch(_DECIMAL, written) else ""


def _with_unit(written: object, lacking: str) -> str:
    given = str(written) if isinstance(written, int | float) and not isinstance(written, bool) else text(written)
    if re.fullmatch(_DECIMAL, given):
        raise ValueError(lacking)
    return given


def _ends(written: object, pattern: str) -> tuple[str | None, str | None]:
    """The two numbers of a range as they stand there; the same twice if there is but one."""
    given = str(written) if isinstance(written, int | float) and not isinstance(written, bool) else text(written)
    if not re.fullmatch(pattern, given):
        if given.startswith("-"):
            raise ValueError("is below 0")
        raise ValueError("has a unit" if re.search(r"[0-9] ?[KMGTkmgt]i?[Bb]", given) else "is no number or range")
    low, dots, high = given.partition("..")
    return low or None, (high or None) if dots else low


def _ordered(found: Range[Number]) -> Range[Number]:
    if found.most is not None and found.most < found.least:
        raise ValueError("ends below its beginning")
    return found
