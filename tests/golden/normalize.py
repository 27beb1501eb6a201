"""A recorded command as a text in which nothing is left that differs from one run to the next of
the same code.

Normalized are paths, ports, moments of the day of recording, and random parts of names. Figures
never are: only where real processes decide them (`exact` is false), numbers are left out, and JSON
is reduced to its keys and types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

NEAR = 2 * 86_400
"""Seconds around the time of recording in which a moment is one of the recording."""

_MOMENT = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_PORT = re.compile(r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+")
_RANDOM = re.compile(r"\b([a-z][a-z0-9-]*)-[0-9a-f]{6}\b")
_MACHINE = re.compile(r"(?<![\w.])[0-9a-f]{16}(?=-\d+\b)")
_RUNTIME = re.compile(r"(?<=/tmp/spotctl-)[0-9a-f]{8}\b")
_TEMPORARY = re.compile(r"(?<=/)(tmp|\.tmp)[a-z0-9_]{8}\b")
_TAKEN = re.compile(
    r'(?<="wall_seconds": )[\d.e+-]+|(?<="solve_seconds": )[\d.e+-]+'
    r"|(?<=[a-z] in )[\d.,]+(?= m?s$)|(?<= allocations, )[\d.,]+(?= s$)",
    re.MULTILINE,
)
"""How long a command took, as it says."""
_FREE = re.compile(r"[\d.,]+(?= GiB free in )")
_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e[+-]?\d+)?")


def text_of(step: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The whole answer of a command: its exit code, what it printed, and the files that it
    wrote."""
    exact, parts = step["exact"], [f"exit code {step['code']}\n"]
    at = record["at"] if step["process"] or step["script"] else None
    named = {"stdout": step["out"], "stderr": step["err"], **step["files"]}
    for name, content in named.items():
        if content is None:
            parts.append(f"--- {name} is deleted\n")
        elif content:
            plain = normalized(content, record, at)
            parts.append(f"--- {name}\n{plain if exact else shape(plain)}")
            if not parts[-1].endswith("\n"):
                parts.append("\n(no end of line)\n")
    return "".join(parts)


def normalized(text: str, record: Mapping[str, Any], at: int | None = None) -> str:
    """A text without paths, ports and random names; `at` is when it was recorded, if its clock did
    not stand.
    """
    for path, name in (
        (record["folder"], "HERE"),
        (record["environment"], "ENVIRONMENT"),
        (record["checkout"], "CHECKOUT"),
    ):
        text = text.replace(path, f"<{name}>")
    text = _PORT.sub(r"\1:<port>", text)
    text = _RANDOM.sub(r"\1-<run>", _RUNTIME.sub("<run>", _MACHINE.sub("<machine>", text)))
    text = _TAKEN.sub("<taken>", _TEMPORARY.sub(r"\1<random>", text))
    text = _FREE.sub("<free>", text)
    return text if at is None else _MOMENT.sub(lambda match: _moment(match, at), text)


def _moment(match: re.Match[str], at: int) -> str:
    try:
        moment = datetime.fromisoformat(match.group())
    except ValueError:
        return match.group()
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return "<moment>" if abs(seconds - at) < NEAR else match.group()


def shape(text: str) -> str:
    """The keys and types of JSON, and each different line of other texts once, without its
    numbers."""
    lines: dict[str, None] = {}
    try:
        return json.dumps(_types(json.loads(text)), indent=1, sort_keys=True) + "\n"
    except ValueError:
        lines |= dict.fromkeys(
            " ".join(_NUMBER.sub("#", line).split()) for line in text.splitlines()
        )
    return "".join(f"{line}\n" for line in sorted(lines))


def _types(value: object) -> object:
    match value:
        case dict():
            return {key: _types(one) for key, one in value.items()}
        case list():
            kinds = {json.dumps(_types(one), sort_keys=True) for one in value}
            return [json.loads(kind) for kind in sorted(kinds)]
        case bool() | None | str():
            return type(value).__name__
        case _:
            return "number"
