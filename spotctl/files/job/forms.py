"""The forms of values in a job file: each reads a value, writes it back, and describes itself to
editors.

Patterns hold for every value that is read, so that editors refuse nothing that is accepted.
`conversions` has how values are read and written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

from agileml.apps import FRAMEWORKS
from agileml.params import WIRES
from agileml.pipeline.schedule.schedules import SCHEMES
from bidbrain.gavel import POLICIES
from bidbrain.queue.values import MEAN_COMPLETION
from pricing_data.catalog import ARM, X86
from pricing_data.known_clouds import cloud_names
from pricing_data.market import either
from pricing_data.units import MINUTE, format_time
from spotctl.agent.cloud_parts import clouds_by_scheme, form_of
from spotctl.files.job import conversions
from spotctl.files.job.conversions import AUTO, STRATEGIES
from spotctl.files.job.values import (
    ACCELERATOR_SPEEDS,
    CLOSE,
    CPU,
    RAY,
    TRACKERS,
    Objective,
    ProgramKind,
)
from spotctl.home import cloud as cloud_words
from spotctl.home.cloud import rented_clouds

_SCHEMES = {cloud: scheme for scheme, cloud in clouds_by_scheme().items()}
_STORES = [(_SCHEMES[cloud], cloud) for cloud in rented_clouds() if cloud in _SCHEMES]
_LOCATION = rf"(?!.*(\x00|%00))(({'|'.join(scheme for scheme, _ in _STORES)})://[^/\s]\S*|file:///\S(.*\S)?|(?!\w+://)\S(.*\S)?)"
_BUCKETS = [form_of(cloud).removesuffix("/...") for _, cloud in _STORES]
_BUCKET = "|".join(re.sub(r"[A-Z]+", r"[^/\\s@]+", form) + "/?" for form in _BUCKETS)
_FOLDER = r"[^\x00]*[^\s\x00][^\x00]*"
_JOB_NAME = r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?"
_APP = r"[A-Za-z][-\w]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|\S(.*\S)?\.py(:[A-Za-z_]\w*)?"
_WEBHOOK = r"https://[^\s/@]+(/\S*)?|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/\S*)?|\$[A-Za-z_][A-Za-z0-9_]*"
_SERVICE = r"(?!https?://)[a-z][-+.a-z0-9]*://\S+|\$[A-Za-z_][A-Za-z0-9_]*"
_TYPE = r"[-A-Za-z0-9._+]+"
_RAY_ADDRESS = r"auto|[A-Za-z0-9][-A-Za-z0-9.]*:[0-9]{1,5}|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}"
OPTIMIZERS = ("adam", "momentum", "sgd")
ANY = "any"
"""Every region, every zone, or every architecture."""


@dataclass(frozen=True, eq=False)
class Form:
    """One way to write a value. `expected` says in an error what may be written, `schema` is JSON
    Schema.
    """

    read: Callable[[object], Any]
    expected: str
    schema: Mapping[str, object]
    write: Callable[[Any], object] = lambda value: value
    may_be_empty: bool = False


# -- families of forms -----------------------------------------------------------------------------


def _text(
    pattern: str,
    expected: str,
    read: Callable[[object], object] | None = None,
    write: Callable[[Any], object] = str,
    number: str = "",
) -> Form:
    """A text with a pattern; `number` names the JSON type of numbers that may be written
    instead."""
    schema: dict[str, object] = {"type": "string", "pattern": f"^(?:{pattern})$"}
    if number:
        schema |= {"type": ["string", number], "minimum": 0}
    return Form(read or partial(conversions.read_matching, pattern), expected, schema, write)


def _choice(names: Iterable[str], make: Callable[[str], object] = str) -> Form:
    known = [str(name) for name in names]
    read = partial(conversions.read_choice, known=known, make=make)
    return Form(read, f"one of {', '.join(known)}", {"enum": known}, str)


def _whole(least: int, most: int) -> Form:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    read = partial(conversions.read_whole, least=least, most=most)
    return Form(read, f"a whole number from {least} to {most}", schema)


def _number(
    expected: str, minimum: float = -inf, maximum: float = inf, exclusive_maximum: float = inf
) -> Form:
    limits = {"minimum": minimum, "maximum": maximum, "exclusiveMaximum": exclusive_maximum}
    schema = {
        "type": "number",
        **{name: limit for name, limit in limits.items() if isfinite(limit)},
    }
    read = partial(conversions.read_number, least=minimum, most=maximum, below=exclusive_maximum)
    return Form(read, expected, schema)


def _auto_or(form: Form) -> Form:
    """The form, or `auto`, which is None."""
    schema = {"anyOf": [{"const": AUTO}, dict(form.schema)]}
    return Form(
        lambda written: None if written == AUTO else form.read(written),
        f"auto, or {form.expected}",
        schema,
        form.write,
    )


# -- the forms of a job file -----------------------------------------------------------------------

_COMPLETE_STRATEGIES = [name for name, argument in STRATEGIES.items() if re.fullmatch(argument, "")]

JOB_NAME = _text(
    _JOB_NAME, "up to 50 of a-z, 0-9 and -, beginning with a letter and not ending with -"
)
KIND = _choice(ProgramKind, ProgramKind)
OBJECTIVE = _choice(Objective, Objective)
QUEUE_POLICY = _choice((MEAN_COMPLETION, *POLICIES))
CLOUD = _choice(cloud_names())
STRATEGY = Form(
    conversions.read_strategy,
    f"one of {', '.join(STRATEGIES)}, some with an argument: price-capacity:3 (pools), "
    "lookahead:12.5 (USD per hour)",
    {
        "anyOf": [
            {"enum": _COMPLETE_STRATEGIES},
            {"type": "string", "pattern": f"^(?:{conversions.STRATEGY_PATTERN})$"},
        ]
    },
)
APP = _text(_APP, "a built-in app (mf), module:Class, FILE.py or FILE.py:NAME")
FRAMEWORK = _text("|".join(FRAMEWORKS), f"one of {', '.join(FRAMEWORKS)}")
ENGINE = _choice((RAY,))
WIRE = _choice(WIRES)
RAY_ADDRESS = _text(_RAY_ADDRESS, "HOST:PORT of a Ray cluster, or auto on one of its machines")
TEXT = Form(conversions.read_text, "text", {"type": "string", "pattern": r"\S"})
FOLDER = _text(
    _FOLDER, "a folder", lambda written: Path(conversions.read_matching(_FOLDER, written))
)
REGION = _text(r"[A-Za-z][-A-Za-z0-9 ]*", "a region's name such as us-east-1")
ZONE = _text(r"[A-Za-z0-9][-A-Za-z0-9]*", "a zone's name such as us-east-1a")
TYPE_NAME = _text(_TYPE, "a type's name such as c6i.2xlarge")
TYPE_GLOB = _text(
    r"[-A-Za-z0-9._+*?\[\]]+", "a type's name such as c6i.2xlarge, or a glob such as c6i.*"
)
LOCATION = _text(
    _LOCATION, f"a path, file:///PATH, {either([form_of(cloud) for _, cloud in _STORES])}"
)
KEPT_PLACE = _text(
    r"(?![/~]|\.?/*$|(.*/)?\.\.(/|$))\S([^\x00]*\S)?",
    "a file or folder in the job's folder, such as checkpoints/",
)
BUCKET = _text(_BUCKET, f"a bucket without a folder: {either(_BUCKETS)}")
PART_NAME = _text(
    r"[A-Za-z][-A-Za-z0-9_]*", "a name of letters, digits, - and _ that begins with a letter"
)
RENTED_CLOUD = _text("|".join(rented_clouds()), f"a cloud: {either(rented_clouds())}")
IMAGE = _text(
    r"[A-Za-z0-9/][-A-Za-z0-9._:/]*", "the name of an image as its cloud writes it, or auto"
)
CONTAINER = _text(
    conversions.IMAGE_PATTERN,
    "a container image such as ghcr.io/me/train:1, or python:3.12 for one of Docker Hub",
)
ENVIRONMENT = Form(
    conversions.read_environment,
    "a file such as requirements.txt, uv.lock or environment.yml, python or python3.12, none, or "
    "docker:IMAGE",
    {"type": ["string", "object"], "pattern": r"\S"},
    conversions.written_environment,
)
TAG_NAME = _text(cloud_words.TAG_NAME, "up to 63 of a-z, 0-9, - and _, beginning with a letter")
TAG_VALUE = _text(cloud_words.TAG_VALUE, "up to 63 of a-z, 0-9, - and _, which every cloud accepts")
VARIABLE = _text(
    conversions.VARIABLE_PATTERN, "the name of an environment variable", conversions.read_variable
)
VARIABLE_VALUE = Form(
    conversions.read_variable_value, "text", {"type": ["string", "number", "boolean"]}
)
KEYWORD = _text(r"[A-Za-z_]\w*", "the name of a Python argument")
ARGUMENT = Form(
    conversions.read_argument,
    "a number, text, true or false, null, or a list or mapping of these",
    {},
    may_be_empty=True,
)
WEBHOOK = _text(
    _WEBHOOK, "https://HOST/..., http:// on this computer, or $NAME of an environment variable"
)
SERVICE = _text(
    _SERVICE,
    "an address of Apprise without a secret such as mailtos://HOST?from=ME&to=YOU, or $NAME of an "
    "environment variable (https://... is for webhook)",
)
TRACK = Form(
    conversions.read_trackers,
    "mlflow, wandb, or a mapping with a place: {mlflow: http://HOST:5000} without a password, "
    "{wandb: PROJECT}",
    {
        "anyOf": [
            {"enum": [*TRACKERS]},
            {
                "type": "object",
                "properties": {
                    name: {"type": ["string", "null"], "pattern": f"^(?:{pattern})$"}
                    for name, pattern in conversions.TRACKER_PATTERNS.items()
                },
                "additionalProperties": False,
                "minProperties": 1,
            },
        ]
    },
    conversions.trackers_text,
)
NODES = Form(
    conversions.read_nodes,
    "a whole number from 1 to 10000, or a range such as 2..4",
    {
        "type": ["string", "integer"],
        "pattern": f"^(?:{conversions.NODES_PATTERN})$",
        "minimum": 1,
        "maximum": 10_000,
    },
    lambda nodes: str(nodes) if nodes.is_range else nodes.least,
)
FAILURE = _text(
    conversions.FAILURE_PATTERN,
    "setup, or the status (1 to 255) with which the command exits",
    conversions.read_failure,
)
RETRIES = _whole(0, 1000)
DISK = _whole(8, 65_536)
MACHINES = _whole(0, 10_000)
CLOCKS = _whole(1, conversions.MOST)
SEED = _whole(0, 2**32 - 1)
FINITE = _number("a number")
WORK_RATE = _number("a number from 1e-6 to 1e12", 1e-6, 1e12)
_MINUTES = _number(f"a number from 0.01 to {conversions.MOST}", 0.01, conversions.MOST)
MINUTES = Form(
    lambda written: round(_MINUTES.read(written) * MINUTE),
    _MINUTES.expected,
    _MINUTES.schema,
    lambda span: span / MINUTE,
)
SPEED = _number("a number from 1 to 1000000", 1, 1_000_000)
WEIGHT = _number("a number from 0.001 to 1000", 0.001, 1000)
SHARE = _number("a share from 0 to 1", 0, 1)
TOLERANCE = _number("a share from 0 to below 1, such as 0.02", 0, exclusive_maximum=1)
SPAN = _text(
    conversions.SPAN_PATTERN,
    "a number with a unit: 90s, 15m, 10h, 2d or 1w",
    conversions.read_span,
    conversions.span_text,
)
WORK_TIME = _text(
    rf"{conversions.SPAN_PATTERN}( on {_TYPE})?(, 0\.[0-9]{{1,6}} left)?",
    "a number with a unit, and maybe the type of machine that takes it: 8h, or 8h on c6i.2xlarge",
    conversions.read_work_time,
    conversions.work_time_text,
)
DEADLINE = _text(
    f"{conversions.SPAN_PATTERN}|{conversions.CLOCK}",
    "a duration with its unit such as 90m, 10h or 2d, or a time of day from 00:00 to 23:59",
    conversions.read_deadline,
    conversions.deadline_text,
)
MONEY = _text(
    conversions.MONEY_PATTERN,
    "an amount above 0 such as 25 USD or 0.50 USD",
    conversions.read_money,
    conversions.money_text,
)
PER_HOUR = _text(
    conversions.PER_HOUR_PATTERN,
    "an amount per hour above 0 such as 5 USD/h",
    conversions.read_per_hour,
    conversions.per_hour_text,
)
SIZE = _text(
    conversions.SIZE_PATTERN,
    "a size with its unit: 500MB, 50GB or 1TB",
    conversions.read_size,
    conversions.size_text,
)
MEMORY = _text(
    conversions.MEMORY_PATTERN,
    "an amount of memory with its unit: 4 GiB, 7.5 GiB or 512 MiB",
    conversions.read_memory,
    conversions.memory_text,
)
PLACEMENT = _choice((CLOSE,))
ARCHITECTURE = _choice((X86, ARM, ANY))
FLAG = Form(conversions.read_flag, "true or false", {"type": "boolean"})
BACKUP_WORKERS = Form(conversions.read_backup_workers, f"{AUTO} or false", {"enum": [False, AUTO]})
EVERY = _text(
    f"{AUTO}|{conversions.SPAN_PATTERN}",
    "auto, or a number with a unit: 90s, 15m, 10h",
    _auto_or(SPAN).read,
    conversions.span_text,
)
WORD_AUTO = _choice((AUTO,))
AUTO_OR_MACHINES = _auto_or(MACHINES)
AUTO_OR_COUNT = _auto_or(_whole(1, conversions.MOST))
DELAY = _whole(0, 1000)
AUTO_OR_TENSOR = _auto_or(_whole(1, 64))
AUTO_OR_FLAG = _auto_or(FLAG)
SCHEME = _choice((AUTO, *SCHEMES))
OPTIMIZER = _choice(OPTIMIZERS)
DEVICE = _choice((CPU, *ACCELERATOR_SPEEDS))
MOMENT = _text(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*",
    "an ISO 8601 time such as 2026-01-25T06:00:00Z",
    conversions.read_moment,
    format_time,
)
MACHINE_RANGE = _text(
    conversions.WHOLE_RANGE_PATTERN,
    "a number or a range such as 8, 4..64, 4.. or ..64",
    partial(conversions.read_range, number=int, least=0),
    number="integer",
)
VCPU_RANGE = _text(
    conversions.WHOLE_RANGE_PATTERN,
    "a number or a range such as 8, 4..16, 8.. or ..16",
    partial(conversions.read_range, number=int, least=1),
    number="integer",
)
MEMORY_RANGE = _text(
    conversions.RANGE_PATTERN,
    "a number or a range of GiB such as 16, 7.5..64 or 16..",
    partial(conversions.read_range, number=float, least=0.0),
    number="number",
)
_ACCELERATORS: dict[str, object] = {
    "type": "string",
    "pattern": f"^(?:{conversions.ACCELERATORS_PATTERN})$",
}
ACCELERATORS = Form(
    conversions.read_accelerators,
    'a model or a memory, and how many: V100, "V100:4", "24GB..:1"; or a list of these',
    {"anyOf": [_ACCELERATORS, {"type": "array", "items": _ACCELERATORS, "minItems": 1}]},
    conversions.accelerators_text,
)


def job_name(name: str) -> str:
    """A job's name that is as near to another name as possible.

    >>> job_name("My_Task.v2"), job_name("7b")
    ('my-task-v2', 'job-7b')
    """
    near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    near = near if near[:1].isalpha() else f"job-{near}".strip("-")
    short = near[:50].rstrip("-")
    return str(JOB_NAME.read(short))
