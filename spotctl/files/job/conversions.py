"""How values in a job file are read from what YAML made of them, and written back.

Each reader raises ValueError with what is wrong: text that follows the value (`has no unit`), or a
sentence in which `{found}` stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from math import isfinite

from bidbrain.strategies.names import DEADLINE, IN_PLACE_OF, OF_JOBS, REGIONS
from pricing_data.errors import BadInput
from pricing_data.market import closest
from pricing_data.units import (
    DAY,
    HOUR,
    MINUTE,
    NANOS_PER_DOLLAR,
    SECOND,
    format_usd,
    parse_duration,
    parse_time,
)
from spotctl.agent.container.named_packages import NamedPackages
from spotctl.files.job.values import (
    MLFLOW,
    TRACKERS,
    WANDB,
    Accelerators,
    ByClock,
    LimitT,
    Nodes,
    Range,
    Within,
    WorkTime,
)

_DIGITS = r"[0-9]{1,9}"
DECIMAL_PATTERN = rf"{_DIGITS}(\.[0-9]{{1,9}})?"
SPAN_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,6})? ?[smhdw]"
CLOCK = r"([01]?[0-9]|2[0-3]):[0-5][0-9]"
MONEY_PATTERN = rf"{DECIMAL_PATTERN} ?USD"
PER_HOUR_PATTERN = rf"{MONEY_PATTERN} ?/ ?h"
WHOLE_RANGE_PATTERN = rf"{_DIGITS}|{_DIGITS}\.\.({_DIGITS})?|\.\.{_DIGITS}"
RANGE_PATTERN = (
    rf"{DECIMAL_PATTERN}|{DECIMAL_PATTERN}\.\.({DECIMAL_PATTERN})?|\.\.{DECIMAL_PATTERN}"
)
NODES_PATTERN = r"[1-9][0-9]{0,3}\.\.[1-9][0-9]{0,3}"
_MODEL, _GB = r"[A-Za-z][A-Za-z0-9-]*", rf"{DECIMAL_PATTERN}GB"
_GPU_MEMORY = rf"{_GB}|{_GB}\.\.({_GB})?|\.\.{_GB}"
ACCELERATORS_PATTERN = rf"({_MODEL}(:({_GPU_MEMORY}))?|{_GPU_MEMORY})(:({WHOLE_RANGE_PATTERN}))?"
RESERVED_PREFIX = "SPOTCTL_"
"""spotctl sets the variables that begin with this on every machine."""
VARIABLE_PATTERN = rf"(?!{RESERVED_PREFIX})[A-Za-z_][A-Za-z0-9_]*"
MOST = 10**9
AUTO = "auto"
"""Left to spotctl to choose."""
_SIZES = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE_PATTERN = rf"{DECIMAL_PATTERN} ?({'|'.join(_SIZES)})"
_MEMORY_UNITS = {"MiB": 1 / 1024, "GiB": 1, "TiB": 1024}
MEMORY_PATTERN = rf"{DECIMAL_PATTERN} ?({'|'.join(_MEMORY_UNITS)})"
_STRATEGY_ARGUMENTS = {
    "price-capacity": r"(:[1-9][0-9]{0,3})?",
    "lookahead": rf"(:{DECIMAL_PATTERN})?",
}
STRATEGIES = {
    name: _STRATEGY_ARGUMENTS.get(name, "") for name in (AUTO, *OF_JOBS, DEADLINE, REGIONS)
}
"""Names of strategies, each with the pattern of its argument."""
STRATEGY_PATTERN = "|".join(name + argument for name, argument in STRATEGIES.items())
TRACKER_PATTERNS = {
    MLFLOW: r"(?![a-z]+://[^/]*@)[^\s\x00]+",
    WANDB: r"[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)?",
}
"""How each tracker's place is written. The event log keeps the job, so an address must not hold a
password."""
FAILURE_PATTERN = r"setup|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5]"


def meant(given: str, known: Iterable[str]) -> str:
    """The name that was probably meant, as a question; empty if none is close."""
    near = closest(given, known)
    return f" (did you mean {near[0]}?)" if near else ""


def read_failure(written: object) -> str:
    """YAML reads the status as a number."""
    text = str(written)
    if isinstance(written, bool) or not re.fullmatch(FAILURE_PATTERN, text):
        raise ValueError("is neither an exit status from 1 to 255 nor setup")
    return text


def read_text(written: object) -> str:
    if not isinstance(written, str):
        raise ValueError("is not text")
    if not written.strip():
        raise ValueError("is blank")
    return written


def read_matching(pattern: str, written: object) -> str:
    given = read_text(written)
    if not re.fullmatch(pattern, given):
        raise ValueError("does not fit")
    return given


IMAGE_PATTERN = r"[A-Za-z0-9][-A-Za-z0-9._:/]*(?:@sha256:[0-9a-f]{64})?"
IMAGE = "docker:"
"""The beginning of an image where a file may be named, too."""


def read_environment(written: object) -> str | NamedPackages:
    """A word or a file's name; in the log, what the file said."""
    if isinstance(written, Mapping):
        try:
            return NamedPackages(**written)
        except TypeError:
            raise ValueError("is no text") from None
    named = read_text(written).strip()
    if named.startswith(IMAGE):
        read_matching(IMAGE_PATTERN, named.removeprefix(IMAGE).strip())
    return named


def written_environment(value: str | NamedPackages) -> object:
    return asdict(value) if isinstance(value, NamedPackages) else value


def span_text(micros: int) -> str:
    """A span in the largest unit that divides it, else in seconds.

    >>> span_text(90 * MINUTE), span_text(DAY), span_text(1_500_000)
    ('90m', '1d', '1.5s')
    """
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        if micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{Decimal(micros) / SECOND:f}s"


def read_span(written: object) -> int:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(SPAN_PATTERN, given):
        unit = re.fullmatch(r"[0-9.]+ ?([A-Za-z]+)", given)
        raise ValueError(f"has the unknown unit {unit[1]}" if unit else "is not a duration")
    try:
        return parse_duration(given)
    except BadInput:
        raise ValueError("is 0, or longer than a hundred years") from None


def read_work_time(written: object) -> WorkTime:
    """
    >>> read_work_time("4h on c4.2xlarge")
    WorkTime(span=14400000000, on='c4.2xlarge', left=1.0)
    >>> read_work_time("4h, 0.25 left")
    WorkTime(span=14400000000, on=None, left=0.25)
    """
    whole, _, left = str(written).removesuffix(" left").partition(", ")
    span, _, machine = whole.partition(" on ")
    of_text = isinstance(written, str)
    return WorkTime(read_span(span if of_text else written), machine or None, float(left or 1.0))


def work_time_text(work: WorkTime) -> str:
    on = "" if work.on is None else f" on {work.on}"
    left = "" if work.left == 1 else f", {work.left:.6f} left"
    return f"{span_text(work.span)}{on}{left}"


def read_deadline(written: object) -> Within | ByClock:
    if isinstance(written, str) and re.fullmatch(CLOCK, written):
        hour, _, minute = written.partition(":")
        return ByClock(int(hour), int(minute))
    if isinstance(written, str) and ":" in written:
        raise ValueError("is not a time of day")
    return Within(read_span(written))


def deadline_text(due: Within | ByClock) -> str:
    return span_text(due.span) if isinstance(due, Within) else f"{due.hour:02}:{due.minute:02}"


def read_money(written: object) -> int:
    given = _with_unit(written, "has no currency")
    if not re.fullmatch(MONEY_PATTERN, given):
        raise ValueError(
            "is not in USD"
            if re.fullmatch(rf"{DECIMAL_PATTERN} ?[A-Za-z]+", given)
            else "is not an amount"
        )

    nanos = int(Decimal(given.removesuffix("USD").strip()) * NANOS_PER_DOLLAR)
    if not nanos:
        raise ValueError("is not above 0")
    return nanos


def read_size(written: object) -> int:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(SIZE_PATTERN, given):
        raise ValueError("is not a size")
    return round(Decimal(given[:-2].strip()) * _SIZES[given[-2:]])


def size_text(size: int) -> str:
    """A number of bytes in the largest unit that divides it, else in MB.

    >>> size_text(50 * 10**9), size_text(1_500_000)
    ('50GB', '1.5MB')
    """
    unit = next((name for name in ("TB", "GB") if size % _SIZES[name] == 0), "MB")
    return f"{(Decimal(size) / _SIZES[unit]).normalize():f}{unit}"


def read_memory(written: object) -> float:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(MEMORY_PATTERN, given):
        raise ValueError("is not an amount of memory")
    return float(given[:-3].strip()) * _MEMORY_UNITS[given[-3:]]


def memory_text(gib: float) -> str:
    """An amount of memory as it is written in a job file.

    >>> memory_text(4.0), memory_text(0.5)
    ('4 GiB', '0.5 GiB')
    """
    return f"{Decimal(str(gib)).normalize():f} GiB"


def read_per_hour(written: object) -> int:
    given = _with_unit(written, "has no unit")
    if not re.fullmatch(PER_HOUR_PATTERN, given):
        raise ValueError("is not in USD per hour")
    return read_money(given.rsplit("/", 1)[0].strip())


def per_hour_text(nanos: int) -> str:
    """A price of time as it is written in a job file: `5 USD/h`."""
    return f"{money_text(nanos)}/h"


def money_text(nanos: int) -> str:
    """An amount as it is written in a job file: `25 USD`."""
    return f"{format_usd(nanos)} USD"


def read_range(written: object, number: Callable[[str], LimitT], least: LimitT) -> Range[LimitT]:
    """Reads `8`, `4..16`, `8..` and `..16`, which begins at `least`; `number` is int or float."""
    given = _with_number(written)
    if not re.fullmatch(WHOLE_RANGE_PATTERN if number is int else RANGE_PATTERN, given):
        if given.startswith("-"):
            raise ValueError("is below 0")
        raise ValueError(
            "has a unit"
            if re.search(r"[0-9] ?[KMGTkmgt]i?[Bb]", given)
            else "is not a number or range"
        )

    low, dots, high = given.partition("..")
    begin = number(low) if low else least
    end = (number(high) if high else None) if dots else begin
    if begin < least:
        raise ValueError(f"begins below {least}")
    if end is not None and end < begin:
        raise ValueError("ends below its beginning")

    return Range(begin, end)


def read_accelerators(written: object) -> tuple[Accelerators, ...]:
    """The kinds in a text, or in a list of texts, any of which a machine may have."""
    if written == []:
        raise ValueError("is empty")
    kinds = dict[Accelerators, None]()
    for text in written if isinstance(written, list) else [written]:
        given = read_text(text)
        if not re.fullmatch(ACCELERATORS_PATTERN, given):
            raise ValueError("names no model or memory")

        model, memory, count = "", None, Range(1)
        for word in given.split(":"):
            if "GB" in word and not word[0].isalpha():
                memory = read_range(word.replace("GB", ""), float, 0.0)
            elif word[0].isalpha():
                model = word
            else:
                count = read_range(word, int, 1)
        kinds[Accelerators(model, count, memory)] = None

    return tuple(kinds)


def accelerators_text(kinds: Sequence[Accelerators]) -> str | list[str]:
    """The kinds as they are written in a job file."""
    texts = []
    for kind in kinds:
        memory = re.sub(DECIMAL_PATTERN, r"\g<0>GB", str(kind.memory_gib or ""))
        texts.append(":".join(filter(None, (kind.model, memory, str(kind.count)))))
    return texts[0] if len(texts) == 1 else texts


def read_variable(written: object) -> str:
    if read_text(written).startswith(RESERVED_PREFIX):
        raise ValueError(f"begins with {RESERVED_PREFIX}, which is reserved for spotctl")
    return read_matching(VARIABLE_PATTERN, written)


def read_variable_value(written: object) -> str:
    # A file's plain words arrive as texts; these types come from JSON.
    if isinstance(written, bool):
        return str(written).lower()
    if isinstance(written, str | int | float):
        return str(written)
    raise ValueError("is not text")


def read_flag(written: object) -> bool:
    # A file's plain words arrive as texts; these types come from JSON.
    flag = {"true": True, "false": False}.get(written) if isinstance(written, str) else written
    if not isinstance(flag, bool):
        raise ValueError("is neither true nor false")
    return flag


def read_choice(written: object, known: Sequence[str], make: Callable[[str], object]) -> object:
    given = read_text(written)
    if given not in known:
        raise ValueError(f"unknown value {{found}}{meant(given, known)}")
    return make(given)


def read_number(written: object, least: float, most: float, below: float) -> float:
    """A number from `least` to `most`, and below `below`."""
    if isinstance(written, bool) or not isinstance(written, int | float):
        quoted = isinstance(written, str) and re.fullmatch(DECIMAL_PATTERN, written)
        raise ValueError("is not a number" + (" (remove the quotes)" if quoted else ""))
    if not isfinite(written):
        raise ValueError("is not finite")
    if not least <= written <= most or written >= below:
        raise ValueError("is out of range")
    return float(written)


def read_whole(written: object, least: int, most: int) -> int:
    if isinstance(written, bool) or not isinstance(written, int):
        quoted = isinstance(written, str) and re.fullmatch(DECIMAL_PATTERN, written)
        raise ValueError("is not a whole number" + (" (remove the quotes)" if quoted else ""))
    if not least <= written <= most:
        raise ValueError(f"is too {'small' if written < least else 'large'}")
    return written


def read_backup_workers(written: object) -> bool | int | str:
    """Also true and a number, which runs of earlier versions have; a job file with one is
    refused."""
    if written == AUTO:
        return AUTO
    if isinstance(written, int) and not isinstance(written, bool):
        return read_whole(written, 0, MOST)
    return read_flag(written)


def read_nodes(written: object) -> Nodes:
    if isinstance(written, str) and ".." in written:
        if not re.fullmatch(NODES_PATTERN, written):
            raise ValueError("is not a range with two ends, from 1 up")
        least, most = map(int, written.split(".."))
        if most < least:
            raise ValueError("ends below its beginning")
        return Nodes(least, most)

    number = read_whole(written, 1, 10_000)
    return Nodes(number, number)


def read_argument(written: object) -> object:
    """Anything that JSON can hold."""
    if isinstance(written, dict):
        if not all(isinstance(key, str) for key in written):
            raise ValueError("has a key that is not text")
        return {key: read_argument(value) for key, value in written.items()}
    if isinstance(written, list):
        return [read_argument(value) for value in written]
    if isinstance(written, float) and not isfinite(written):
        raise ValueError("is not finite")

    return written


def read_moment(written: object) -> int:
    try:
        return parse_time(read_text(written))
    except BadInput:
        raise ValueError("is not a time from 2008 to 2099") from None


def read_trackers(written: object) -> dict[str, str]:
    """The trackers with their places; a place is empty where the tracker's own settings say it."""
    places = written if isinstance(written, dict) else {read_text(written): ""}
    if not places:
        raise ValueError("is empty")

    for name, place in places.items():
        if name not in TRACKERS:
            called = "unknown tracker {found}"
            if isinstance(written, dict):
                called = f"names the unknown tracker {name!r}"
            raise ValueError(f"{called}{meant(str(name), TRACKERS)}")
        if place and not re.fullmatch(TRACKER_PATTERNS[name], str(place)):
            raise ValueError(f"has a place for {name} that does not fit")

    return {name: str(place or "") for name, place in places.items()}


def trackers_text(places: Mapping[str, str]) -> object:
    """Trackers as a job file names them: one without a place by its name alone."""
    if len(places) == 1 and not any(places.values()):
        return next(iter(places))
    return {name: place or None for name, place in places.items()}


def read_strategy(written: object) -> str:
    given = read_text(written)
    name, colon, _ = given.partition(":")
    # A run of an earlier version may have a strategy that a file is refused for.
    if re.fullmatch(STRATEGY_PATTERN, given) or name in IN_PLACE_OF:
        return given
    if name not in STRATEGIES:
        raise ValueError(f"unknown value {{found}}{meant(name, STRATEGIES)}")
    raise ValueError("has an argument that does not fit" if colon else "needs an argument")


def _with_number(written: object) -> str:
    """The text of a value that may be a number alone, which YAML has read as one."""
    if isinstance(written, int | float) and not isinstance(written, bool):
        return str(written)
    return read_text(written)


def _with_unit(written: object, lacking: str) -> str:
    given = _with_number(written)
    if re.fullmatch(DECIMAL_PATTERN, given):
        raise ValueError(lacking)
    return given
