"""Filters of Compute Engine's lists: conditions on labels, or one regular expression on a field.

https://cloud.google.com/compute/docs/reference/rest/v1/instances/aggregatedList (the parameter
`filter`)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.servers.gcp import Refused

_CONDITION = re.compile(r"""labels\.(?P<key>[a-z0-9_-]+)\s*(?P<test>:\*|=\s*"(?P<value>[^"]*)")""")
_EXPRESSION = re.compile(r"""(?P<field>name|targetLink)\s+eq\s+"(?P<pattern>[^"]*)\"""")
_FIELDS = {"name": "name", "targetLink": "target_link"}


def filter_of(text: str) -> Callable[[Any], bool]:
    """Whether a resource is chosen by a filter. Refused: the filter is not understood."""
    if not text:
        return lambda _: True
    if match := _EXPRESSION.fullmatch(text.strip()):
        pattern, field = re.compile(match["pattern"]), _FIELDS[match["field"]]
        return lambda one: pattern.fullmatch(getattr(one, field)) is not None
    parts = [part.strip("() ") for part in re.split(r"\)\s*\(", text.strip())]
    conditions = [_CONDITION.fullmatch(part) for part in parts]
    if not all(conditions):
        raise Refused(
            400,
            f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.",
            "invalid",
        )
    return lambda one: all(_holds(one.labels, match) for match in conditions if match)


def _holds(labels: Any, match: re.Match[str]) -> bool:  # noqa: ANN401  # the SDK's maps
    if match["test"] == ":*":
        return match["key"] in labels
    return bool(labels.get(match["key"]) == match["value"])
