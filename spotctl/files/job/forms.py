"""How values stand in a job.yaml, each as pydantic reads it, as an error explains it, and as editors are told of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from pricing_data.market import CLOUDS
from spotctl.files.job import units
from spotctl.files.job.spec import Accelerators, ByClock, Kind, Objective, Range, Within

UNREADABLE = "unreadable"
"""The type of a form's own errors; their context has what is wrong and what is allowed."""


@dataclass(frozen=True, eq=False)
class Form:
    """Reads one kind of value; what `read` raises ValueError about is explained together with what is allowed."""

    read: Callable[[object], object]
    allowed: str
    schema: Mapping[str, object]
    may_be_empty: bool = False

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._explained)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)

    def _explained(self, written: object) -> object:
        try:
            if written is None and not self.may_be_empty:
                raise ValueError("is empty")
            return self.read(written)
        except ValueError as error:
            # The template is ours, because what stands in the file may hold braces.
            context = {"wrong": str(error), "allowed": self.allowed}
            raise PydanticCustomError(UNREADABLE, "{wrong}; allowed is {allowed}", context) from None


def _text(pattern: str, allowed: str, read: Callable[[object], object] | None = None, kind: str = "") -> Form:
    """A text of a form, which a reader of its own may turn into something."""
    schema: dict[str, object] = {"type": "string", "pattern": f"^(?:{pattern})$"}
    if kind:
        schema |= {"type": ["string", kind], "minimum": 0}
    return Form(read or (lambda written: units.fitting(written, pattern)), allowed, schema)


def _choice(names: Iterable[str], make: Callable[[str], object] = str) -> Form:
    known = list(names)
    return Form(lambda written: make(units.choice(written, known)), ", ".join(known), {"enum": known})


def _whole(least: int, most: int) -> Form:
    def read(written: object) -> int:
        found = units.whole(written)
        if not least <= found <= most:
            raise ValueError(f"is too {'small' if found < least else 'large'}")
        return found

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Form(read, f"a whole number from {least} to {most}", schema)


def _number(allowed: str, fits: Callable[[float], bool], **limits: float) -> Form:
    def read(written: object) -> float:
        found = units.number(written)
        if not fits(found):
            raise ValueError("is outside")
        return found

    return Form(read, allowed, {"type": "number", **limits})


_MOST = 10**9
_COMPLETE_STRATEGIES = [name for name, argument in units.STRATEGIES.items() if re.fullmatch(argument, "")]
_NAMES = r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?"
_APPS = r"[A-Za-z][-\w]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|\S(.*\S)?\.py"
_WEBHOOK = r"https://[^\s/@]+(/\S*)?|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/\S*)?|\$[A-Za-z_][A-Za-z0-9_]*"

JobName = Annotated[str, _text(_NAMES, "up to 50 of a-z, 0-9 and -, of which the first is a letter and the last not -")]
KindName = Annotated[Kind, _choice(Kind, Kind)]
ObjectiveName = Annotated[Objective, _choice(Objective, Objective)]
CloudName = Annotated[str, _choice(CLOUDS)]
StrategyName = Annotated[
    str,
    Form(
        units.strategy,
        f"{', '.join(units.STRATEGIES)}, and some with an argument: fixed-bid:0.001 (USD above the price),"
        " price-capacity:3 (pools), lookahead:12.5 (USD per hour)",
        {"anyOf": [{"enum": _COMPLETE_STRATEGIES}, {"type": "string", "pattern": f"^(?:{units.STRATEGY})$"}]},
    ),
]
App = Annotated[str, _text(_APPS, "a built-in app (mf), module:Class, or a Python file that ends in .py")]
Text = Annotated[str, Form(units.text, "a text", {"type": "string", "pattern": r"\S"})]
Word = Annotated[str, _text(r"\S+", "a text without spaces")]
Region = Annotated[str, _text(r"[A-Za-z][-A-Za-z0-9 ]*", "a region's name such as us-east-1")]
TypeName = Annotated[str, _text(r"[-A-Za-z0-9._+]+", "a type's name such as c6i.2xlarge")]
TypeGlob = Annotated[
    str, _text(r"[-A-Za-z0-9._+*?\[\]]+", "a type's name such as c6i.2xlarge, or a glob such as c6i.*")
]
Location = Annotated[
    str, _text(units.LOCATION, "a path, file:///PATH, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER/...")
]
PartName = Annotated[
    str, _text(r"[A-Za-z][-A-Za-z0-9_]*", "a name of letters, digits, - and _ that begins with a letter")
]
TagName = Annotated[str, _text(r"[a-z][-a-z0-9_]{0,62}", "up to 63 of a-z, 0-9, - and _ that begin with a letter")]
TagValue = Annotated[str, _text(r"[-a-z0-9_]{1,63}", "up to 63 of a-z, 0-9, - and _, which every cloud takes")]
Variable = Annotated[str, _text(units.VARIABLE, "the name of an environment variable", units.variable)]
VariableValue = Annotated[
    str,
    Form(
        units.variable_value,
        "a text (put numbers with a point in quotes), a whole number, true or false",
        {"type": ["string", "integer", "boolean"]},
    ),
]
Keyword = Annotated[str, _text(r"[A-Za-z_]\w*", "the name of an argument in Python")]
Argument = Annotated[
    Any,
    Form(units.argument, "a number, a text, true or false, null, or a list or mapping of these", {}, may_be_empty=True),
]
AmiName = Annotated[str, _text(r"auto|ami-[0-9a-f]{8,17}", "auto or an image's id such as ami-0123456789abcdef0")]
Webhook = Annotated[
    str, _text(_WEBHOOK, "an address https://HOST/..., http:// of this computer, or $NAME of the environment")
]
Nodes = Annotated[int, _whole(1, 10_000)]
Machines = Annotated[int, _whole(0, 10_000)]
Clocks = Annotated[int, _whole(1, _MOST)]
DiskGib = Annotated[int, _whole(8, 65_536)]
Seed = Annotated[int, _whole(0, 2**32 - 1)]
Finite = Annotated[float, _number("a number", lambda _: True)]
Positive = Annotated[float, _number("a number above 0", lambda found: found > 0, exclusiveMinimum=0)]
Minutes = Annotated[
    float,
    _number(f"a number from 0.01 to {_MOST}", lambda found: 0.01 <= found <= _MOST, minimum=0.01, maximum=_MOST),
]
Speed = Annotated[
    float, _number("a number from 1 to 1000000", lambda found: 1 <= found <= 1e6, minimum=1, maximum=1_000_000)
]
Share = Annotated[float, _number("a share from 0 to 1", lambda found: 0 <= found <= 1, minimum=0, maximum=1)]
Tolerance = Annotated[
    float,
    _number("a share from 0 to below 1, such as 0.02", lambda found: 0 <= found < 1, minimum=0, exclusiveMaximum=1),
]
Span = Annotated[int, _text(units.SPAN, "a number with a unit: 90s, 15m, 10h, 2d or 1w", units.span)]
Deadline = Annotated[
    Within | ByClock,
    _text(
        f"{units.SPAN}|{units.CLOCK}",
        "a span with its unit such as 90m, 10h or 2d, or a time of day from 00:00 to 23:59",
        units.deadline,
    ),
]
Money = Annotated[int, _text(units.MONEY, "an amount above 0 such as 25 USD or 0.50 USD", units.money)]
Every = Annotated[
    int | None,
    _text(
        f"auto|{units.SPAN}",
        "auto, or a number with a unit: 90s, 15m, 10h",
        lambda written: None if written == "auto" else units.span(written),
    ),
]
Moment = Annotated[
    int, _text(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", "an ISO 8601 time such as 2026-01-25T06:00:00Z", units.moment)
]
MachineRange = Annotated[
    Range[int],
    _text(
        units.WHOLE_RANGE,
        "a number or a range such as 8, 4..64, 4.. or ..64",
        lambda written: units.whole_range(written, 0),
        "integer",
    ),
]
VcpuRange = Annotated[
    Range[int],
    _text(units.WHOLE_RANGE, "a number or a range such as 8, 4..16, 8.. or ..16", units.whole_range, "integer"),
]
MemoryRange = Annotated[
    Range[float],
    _text(units.RANGE, "a number or a range of GiB such as 16, 7.5..64 or 16..", units.decimal_range, "number"),
]
AcceleratorCount = Annotated[
    Accelerators, _text(units.ACCELERATORS, 'a model, and how many: V100, "V100:4", "V100:1.."', units.accelerators)
]
