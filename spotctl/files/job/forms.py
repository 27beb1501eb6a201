"""How values are written in a job file: each form reads a value, writes it back, and describes itself to editors.

`read` takes what YAML made of the value. It raises ValueError with what is wrong: text that follows the value (`has no
unit`), or a sentence in which `{found}` stands for it. Patterns hold for every value that is read, so that editors
refuse nothing that is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from agileml.params.wire_names import WIRES
from agileml.pipeline.schemes import SCHEMES
from bidbrain.strategies.names import NAMES, REGIONS
from pricing_data.errors import BadInput
from pricing_data.market import CLOUDS
from pricing_data.units import (
    DAY,
    HOUR,
    MINUTE,
    NANOS_PER_DOLLAR,
    SECOND,
    format_time,
    format_usd,
    parse_duration,
    parse_time,
)
from spotctl.files.job.devices import ACCELERATOR_SPEEDS, CPU
from spotctl.files.job.values import Accelerators, ByClock, Number, Objective, ProgramKind, Range, Within

_DIGITS = r"[0-9]{1,9}"
_DECIMAL = rf"{_DIGITS}(\.[0-9]{{1,9}})?"
_SPAN = r"[0-9]{1,9}(\.[0-9]{1,6})? ?[smhdw]"
CLOCK = r"([01]?[0-9]|2[0-3]):[0-5][0-9]"
_MONEY = rf"{_DECIMAL} ?USD"
_PER_HOUR = rf"{_MONEY} ?/ ?h"
_WHOLE_RANGE = rf"{_DIGITS}|{_DIGITS}\.\.({_DIGITS})?|\.\.{_DIGITS}"
_RANGE = rf"{_DECIMAL}|{_DECIMAL}\.\.({_DECIMAL})?|\.\.{_DECIMAL}"
_ACCELERATORS = rf"[A-Za-z][A-Za-z0-9-]*(:({_WHOLE_RANGE}))?"
_LOCATION = r"(s3|gs|az)://[^/\s]\S*|file:///\S(.*\S)?|(?!\w+://)\S(.*\S)?"
OURS = "SPOTCTL_"
"""spotctl sets the variables that begin with this on every machine."""
_VARIABLE = rf"(?!{OURS})[A-Za-z_][A-Za-z0-9_]*"
_JOB_NAME = r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?"
_APP = r"[A-Za-z][-\w]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|\S(.*\S)?\.py(:[A-Za-z_]\w*)?"
_WEBHOOK = r"https://[^\s/@]+(/\S*)?|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/\S*)?|\$[A-Za-z_][A-Za-z0-9_]*"
_RAY_ADDRESS = r"auto|[A-Za-z0-9][-A-Za-z0-9.]*:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}"
RAY = "ray"
_MOST = 10**9
OPTIMIZERS = ("adam", "momentum", "sgd")
AUTO = "auto"
"""Left to spotctl to choose."""
ANY = "any"
"""Every region, or every zone."""
_SIZES = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = rf"{_DECIMAL} ?({'|'.join(_SIZES)})"

_STRATEGY_ARGUMENTS = {
    "fixed-bid": rf":{_DECIMAL}",
    "price-capacity": r"(:[1-9][0-9]{0,3})?",
    "lookahead": rf"(:{_DECIMAL})?",
    "lookahead-present": rf"(:{_DECIMAL})?",
}
STRATEGIES = {name: _STRATEGY_ARGUMENTS.get(name, "") for name in (AUTO, *NAMES, REGIONS)}
"""Names of strategies, each with the pattern of its argument."""
_STRATEGY = "|".join(name.replace("+", r"\+") + argument for name, argument in STRATEGIES.items())


@dataclass(frozen=True, eq=False)
class Form:
    """One way to write a value. `expected` says in an error what may be written, `schema` is JSON Schema."""

    read: Callable[[object], Any]
    expected: str
    schema: Mapping[str, object]
    write: Callable[[Any], object] = lambda value: value
    may_be_empty: bool = False


# -- reading and writing -----------------------------------------------------------------------------------------------


def meant(given: str, known: Iterable[str]) -> str:
    """The name that was probably meant, as a question; empty if none is close."""
    near = get_close_matches(given, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


_FAILURE = r"setup|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5]"


def _read_failure(written: object) -> str:
    """YAML reads the status as a number."""
    text = str(written)
    if isinstance(written, bool) or not re.fullmatch(_FAILURE, text):
        raise ValueError("is no such failure")
    return text


def _read_text(written: object) -> str:
    if not isinstance(written, str):
        raise ValueError("is not text")
    if not written.strip():
        raise ValueError("is blank")
    return written


def _matching(pattern: str) -> Callable[[object], str]:
    def read(written: object) -> str:
        given = _read_text(written)
        if not re.fullmatch(pattern, given):
            raise ValueError("does not fit")
        return given

    return read


def span_text(micros: int) -> str:
    """A span in the largest unit that divides it, else in seconds.

    >>> span_text(90 * MINUTE), span_text(DAY), span_text(1_500_000)
    ('90m', '1d', '1.5s')
    """
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        if micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{Decimal(micros) / SECOND:f}s"


def _read_span(written: object) -> int:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(_SPAN, given):
        unit = re.fullmatch(r"[0-9.]+ ?([A-Za-z]+)", given)
        raise ValueError(f"has the unknown unit {unit[1]}" if unit else "is not a duration")
    try:
        return parse_duration(given)
    except BadInput:
        raise ValueError("is 0, or longer than a hundred years") from None


def _read_deadline(written: object) -> Within | ByClock:
    if isinstance(written, str) and re.fullmatch(CLOCK, written):
        hour, _, minute = written.partition(":")
        return ByClock(int(hour), int(minute))
    if isinstance(written, str) and ":" in written:
        raise ValueError("is not a time of day")
    return Within(_read_span(written))


def _deadline_text(due: Within | ByClock) -> str:
    return span_text(due.span) if isinstance(due, Within) else f"{due.hour:02}:{due.minute:02}"


def _read_money(written: object) -> int:
    given = _with_unit(written, "has no currency")
    if not re.fullmatch(_MONEY, given):
        raise ValueError("is not in USD" if re.fullmatch(rf"{_DECIMAL} ?[A-Za-z]+", given) else "is not an amount")
    nanos = int(Decimal(given.removesuffix("USD").strip()) * NANOS_PER_DOLLAR)
    if not nanos:
        raise ValueError("is not above 0")
    return nanos


def _read_size(written: object) -> int:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(_SIZE, given):
        raise ValueError("is not a size")
    return round(Decimal(given[:-2].strip()) * _SIZES[given[-2:]])


def size_text(size: int) -> str:
    """A number of bytes in the largest unit that divides it, else in MB.

    >>> size_text(50 * 10**9), size_text(1_500_000)
    ('50GB', '1.5MB')
    """
    unit = next((name for name in ("TB", "GB") if size % _SIZES[name] == 0), "MB")
    return f"{(Decimal(size) / _SIZES[unit]).normalize():f}{unit}"


def _read_per_hour(written: object) -> int:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(_PER_HOUR, given):
        raise ValueError("is not in USD per hour")
    return _read_money(given.rsplit("/", 1)[0].strip())


def per_hour_text(nanos: int) -> str:
    """A price of time as it is written in a job file: `5 USD/h`."""
    return f"{money_text(nanos)}/h"


def money_text(nanos: int) -> str:
    """An amount as it is written in a job file: `25 USD`."""
    return f"{format_usd(nanos)} USD"


def _whole_range(least: int) -> Callable[[object], Range[int]]:
    """Reads `8`, `4..16`, `8..` and `..16`, which begins at `least`."""

    def read(written: object) -> Range[int]:
        low, high = _ends(written, _WHOLE_RANGE)
        found = Range(least if low is None else int(low), None if high is None else int(high))
        if found.least < least:
            raise ValueError(f"begins below {least}")
        return _ordered(found)

    return read


def _read_decimal_range(written: object) -> Range[float]:
    low, high = _ends(written, _RANGE)
    return _ordered(Range(float(low or 0), None if high is None else float(high)))


def range_text(found: Range[int] | Range[float]) -> str:
    """A range as it is written, without exponents.

    >>> range_text(Range(4, 64)), range_text(Range(7.5)), range_text(Range(8, 8))
    ('4..64', '7.5..', '8')
    """
    least, most = (None if end is None else f"{Decimal(str(end)):f}" for end in (found.least, found.most))
    return f"{least}" if least == most else f"{least}..{most or ''}"


def _read_accelerators(written: object) -> Accelerators:
    given = _read_text(written)
    if not re.fullmatch(_ACCELERATORS, given):
        raise ValueError("is not a model with a count")
    model, colon, count = given.partition(":")
    return Accelerators(model, _whole_range(1)(count) if colon else Range(1))


def _read_variable(written: object) -> str:
    if _read_text(written).startswith(OURS):
        raise ValueError(f"begins with {OURS}, which is reserved for spotctl")
    return _matching(_VARIABLE)(written)


def _read_variable_value(written: object) -> str:
    # A file's plain words arrive as texts; these types come from JSON.
    if isinstance(written, bool):
        return str(written).lower()
    if isinstance(written, str | int | float):
        return str(written)
    raise ValueError("is not text")


def _read_flag(written: object) -> bool:
    # A file's plain words arrive as texts; these types come from JSON.
    found = {"true": True, "false": False}.get(written) if isinstance(written, str) else written
    if not isinstance(found, bool):
        raise ValueError("is neither true nor false")
    return found


def _read_backup_workers(written: object) -> bool | int | str:
    if written == AUTO:
        return AUTO
    if isinstance(written, int) and not isinstance(written, bool):
        return int(_whole(0, _MOST).read(written))
    return _read_flag(written)


def _read_argument(written: object) -> object:
    """Anything that JSON can hold."""
    if isinstance(written, dict):
        if not all(isinstance(key, str) for key in written):
            raise ValueError("has a key that is not text")
        return {key: _read_argument(value) for key, value in written.items()}
    if isinstance(written, list):
        return [_read_argument(value) for value in written]
    if isinstance(written, float) and not isfinite(written):
        raise ValueError("is not finite")
    return written


def _read_moment(written: object) -> int:
    try:
        return parse_time(_read_text(written))
    except BadInput:
        raise ValueError("is not a time from 2008 to 2099") from None


def _read_strategy(written: object) -> str:
    given = _read_text(written)
    name, colon, argument = given.partition(":")
    if re.fullmatch(_STRATEGY, given) and (name != "fixed-bid" or Decimal(argument)):
        return given
    if name not in STRATEGIES:
        raise ValueError(f"unknown value {{found}}{meant(name, STRATEGIES)}")
    raise ValueError("has an argument that does not fit" if colon else "needs an argument")


def _with_unit(written: object, lacking: str) -> str:
    given = str(written) if isinstance(written, int | float) and not isinstance(written, bool) else _read_text(written)
    if re.fullmatch(_DECIMAL, given):
        raise ValueError(lacking)
    return given


def _ends(written: object, pattern: str) -> tuple[str | None, str | None]:
    """The two numbers of a range as they are written; the same number twice if there is only one."""
    given = str(written) if isinstance(written, int | float) and not isinstance(written, bool) else _read_text(written)
    if not re.fullmatch(pattern, given):
        if given.startswith("-"):
            raise ValueError("is below 0")
        raise ValueError("has a unit" if re.search(r"[0-9] ?[KMGTkmgt]i?[Bb]", given) else "is not a number or range")
    low, dots, high = given.partition("..")
    return low or None, (high or None) if dots else low


def _ordered(found: Range[Number]) -> Range[Number]:
    if found.most is not None and found.most < found.least:
        raise ValueError("ends below its beginning")
    return found


# -- families of forms -------------------------------------------------------------------------------------------------


def _text(
    pattern: str,
    expected: str,
    read: Callable[[object], object] | None = None,
    write: Callable[[Any], object] = str,
    number: str = "",
) -> Form:
    """A text with a pattern; `number` names the JSON type of numbers that may be written instead."""
    schema: dict[str, object] = {"type": "string", "pattern": f"^(?:{pattern})$"}
    if number:
        schema |= {"type": ["string", number], "minimum": 0}
    return Form(read or _matching(pattern), expected, schema, write)


def _choice(names: Iterable[str], make: Callable[[str], object] = str) -> Form:
    known = [str(name) for name in names]

    def read(written: object) -> object:
        given = _read_text(written)
        if given not in known:
            raise ValueError(f"unknown value {{found}}{meant(given, known)}")
        return make(given)

    return Form(read, f"one of {', '.join(known)}", {"enum": known}, str)


def _whole(least: int, most: int) -> Form:
    def read(written: object) -> int:
        if isinstance(written, bool) or not isinstance(written, int):
            quoted = isinstance(written, str) and re.fullmatch(_DECIMAL, written)
            raise ValueError("is not a whole number" + (" (remove the quotes)" if quoted else ""))
        if not least <= written <= most:
            raise ValueError(f"is too {'small' if written < least else 'large'}")
        return written

    return Form(read, f"a whole number from {least} to {most}", {"type": "integer", "minimum": least, "maximum": most})


def _number(expected: str, fits: Callable[[float], bool] = lambda _: True, **limits: float) -> Form:
    def read(written: object) -> float:
        if isinstance(written, bool) or not isinstance(written, int | float):
            quoted = isinstance(written, str) and re.fullmatch(_DECIMAL, written)
            raise ValueError("is not a number" + (" (remove the quotes)" if quoted else ""))
        if not isfinite(written):
            raise ValueError("is not finite")
        if not fits(written):
            raise ValueError("is out of range")
        return float(written)

    return Form(read, expected, {"type": "number", **limits})


def _auto_or(form: Form) -> Form:
    """The form, or `auto`, which is None."""
    schema = {"anyOf": [{"const": AUTO}, dict(form.schema)]}
    return Form(
        lambda written: None if written == AUTO else form.read(written), f"auto, or {form.expected}", schema, form.write
    )


# -- the forms of a job file -------------------------------------------------------------------------------------------

_COMPLETE_STRATEGIES = [name for name, argument in STRATEGIES.items() if re.fullmatch(argument, "")]

JOB_NAME = _text(_JOB_NAME, "up to 50 of a-z, 0-9 and -, beginning with a letter and not ending with -")
KIND = _choice(ProgramKind, ProgramKind)
OBJECTIVE = _choice(Objective, Objective)
CLOUD = _choice(CLOUDS)
STRATEGY = Form(
    _read_strategy,
    f"one of {', '.join(STRATEGIES)}, some with an argument: fixed-bid:0.001 (USD above the price), price-capacity:3"
    " (pools), lookahead:12.5 (USD per hour)",
    {"anyOf": [{"enum": _COMPLETE_STRATEGIES}, {"type": "string", "pattern": f"^(?:{_STRATEGY})$"}]},
)
APP = _text(_APP, "a built-in app (mf), module:Class, FILE.py or FILE.py:NAME")
ENGINE = _choice((RAY,))
WIRE = _choice(WIRES)
RAY_ADDRESS = _text(_RAY_ADDRESS, "HOST:PORT of a Ray cluster, or auto on one of its machines")
TEXT = Form(_read_text, "text", {"type": "string", "pattern": r"\S"})
FOLDER = Form(lambda written: Path(_read_text(written)), "a folder", {"type": "string", "pattern": r"\S"}, str)
REGION = _text(r"[A-Za-z][-A-Za-z0-9 ]*", "a region's name such as us-east-1")
ZONE = _text(r"[A-Za-z0-9][-A-Za-z0-9]*", "a zone's name such as us-east-1a")
TYPE_NAME = _text(r"[-A-Za-z0-9._+]+", "a type's name such as c6i.2xlarge")
TYPE_GLOB = _text(r"[-A-Za-z0-9._+*?\[\]]+", "a type's name such as c6i.2xlarge, or a glob such as c6i.*")
LOCATION = _text(_LOCATION, "a path, file:///PATH, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER@ACCOUNT/...")
PART_NAME = _text(r"[A-Za-z][-A-Za-z0-9_]*", "a name of letters, digits, - and _ that begins with a letter")
RENTED_CLOUD = _text("aws|gcp|azure", "a cloud: aws, gcp or azure")
IMAGE = _text(r"[A-Za-z0-9/][-A-Za-z0-9._:/]*", "the name of an image as its cloud writes it, or auto")
CONTAINER = _text(
    r"[A-Za-z0-9][-A-Za-z0-9._:/]*(?:@sha256:[0-9a-f]{64})?",
    "a container image such as ghcr.io/me/train:1, or python:3.12 for one of Docker Hub",
)
TAG_NAME = _text(r"[a-z][-a-z0-9_]{0,62}", "up to 63 of a-z, 0-9, - and _, beginning with a letter")
TAG_VALUE = _text(r"[-a-z0-9_]{1,63}", "up to 63 of a-z, 0-9, - and _, which every cloud accepts")
VARIABLE = _text(_VARIABLE, "the name of an environment variable", _read_variable)
VARIABLE_VALUE = Form(_read_variable_value, "text", {"type": ["string", "number", "boolean"]})
KEYWORD = _text(r"[A-Za-z_]\w*", "the name of a Python argument")
ARGUMENT = Form(
    _read_argument, "a number, text, true or false, null, or a list or mapping of these", {}, may_be_empty=True
)
WEBHOOK = _text(_WEBHOOK, "https://HOST/..., http:// on this computer, or $NAME of an environment variable")
NODES = _whole(1, 10_000)
FAILURE = _text(_FAILURE, "setup, or the status (1 to 255) with which the command exits", _read_failure)
RETRIES = _whole(0, 1000)
DISK = _whole(8, 65_536)
MACHINES = _whole(0, 10_000)
CLOCKS = _whole(1, _MOST)
SEED = _whole(0, 2**32 - 1)
FINITE = _number("a number")
POSITIVE = _number("a number above 0", lambda found: found > 0, exclusiveMinimum=0)
_MINUTES = _number(f"a number from 0.01 to {_MOST}", lambda found: 0.01 <= found <= _MOST, minimum=0.01, maximum=_MOST)
MINUTES = Form(
    lambda written: round(_MINUTES.read(written) * MINUTE),
    _MINUTES.expected,
    _MINUTES.schema,
    lambda span: span / MINUTE,
)
SPEED = _number("a number from 1 to 1000000", lambda found: 1 <= found <= 1e6, minimum=1, maximum=1_000_000)
SHARE = _number("a share from 0 to 1", lambda found: 0 <= found <= 1, minimum=0, maximum=1)
TOLERANCE = _number(
    "a share from 0 to below 1, such as 0.02", lambda found: 0 <= found < 1, minimum=0, exclusiveMaximum=1
)
SPAN = _text(_SPAN, "a number with a unit: 90s, 15m, 10h, 2d or 1w", _read_span, span_text)
DEADLINE = _text(
    f"{_SPAN}|{CLOCK}",
    "a duration with its unit such as 90m, 10h or 2d, or a time of day from 00:00 to 23:59",
    _read_deadline,
    _deadline_text,
)
MONEY = _text(_MONEY, "an amount above 0 such as 25 USD or 0.50 USD", _read_money, money_text)
PER_HOUR = _text(_PER_HOUR, "an amount per hour above 0 such as 5 USD/h", _read_per_hour, per_hour_text)
SIZE = _text(_SIZE, "a size with its unit: 500MB, 50GB or 1TB", _read_size, size_text)
FLAG = Form(_read_flag, "true or false", {"type": "boolean"})
BACKUP_WORKERS = Form(
    _read_backup_workers,
    "true, false, auto, or a number of workers",
    {"anyOf": [{"type": "boolean"}, {"const": AUTO}, {"type": "integer", "minimum": 0, "maximum": _MOST}]},
)
EVERY = _text(
    f"{AUTO}|{_SPAN}",
    "auto, or a number with a unit: 90s, 15m, 10h",
    lambda written: None if written == AUTO else _read_span(written),
    span_text,
)
WORD_AUTO = _choice((AUTO,))
AUTO_OR_COUNT = _auto_or(_whole(1, _MOST))
TENSOR = _whole(1, 64)
AUTO_OR_FLAG = _auto_or(FLAG)
SCHEME = _choice((AUTO, *SCHEMES))
OPTIMIZER = _choice(OPTIMIZERS)
DEVICE = _choice((CPU, *ACCELERATOR_SPEEDS))
MOMENT = _text(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", "an ISO 8601 time such as 2026-01-25T06:00:00Z", _read_moment, format_time
)
MACHINE_RANGE = _text(
    _WHOLE_RANGE, "a number or a range such as 8, 4..64, 4.. or ..64", _whole_range(0), range_text, "integer"
)
VCPU_RANGE = _text(
    _WHOLE_RANGE, "a number or a range such as 8, 4..16, 8.. or ..16", _whole_range(1), range_text, "integer"
)
MEMORY_RANGE = _text(
    _RANGE, "a number or a range of GiB such as 16, 7.5..64 or 16..", _read_decimal_range, range_text, "number"
)
ACCELERATORS = _text(
    _ACCELERATORS,
    'a model, and how many: V100, "V100:4", "V100:1.."',
    _read_accelerators,
    lambda found: f"{found.model}:{range_text(found.count)}",
)
