"""Tags as labels, or as the description of what has no labels, and back. Pure.

A label's value may have 63 lowercase letters, digits, _ and -. Any other character of a tag's value is written as _ and
the hexadecimal digits of its bytes, so that no two tags become the same label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from spotctl.home.errors import BadRequest

REQUEST_LABEL, BID_LABEL = "spotctl-request", "spotctl-bid"
"""The fingerprint of the request, by which a machine of spotctl is recognized, and its bid in nano-dollars."""

_OWN = frozenset({REQUEST_LABEL, BID_LABEL})
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_PLAIN = re.compile(r"[a-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_LONGEST = 63


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    return {_checked_key(key): label_value(key, value) for key, value in tags.items()}


def tags_of(labels: Mapping[str, str], mandatory: Mapping[str, str]) -> dict[str, str]:
    """The tags of a request, without what the settings added."""
    return {key: _value(text) for key, text in labels.items() if key not in _OWN and key not in mandatory}


def label_value(key: str, value: str) -> str:
    text = "".join(character if _PLAIN.fullmatch(character) else _escaped(character) for character in value)
    if len(text) > _LONGEST:
        raise BadRequest(f"tag {key}={value!r} is too long for a label of Google Cloud ({_LONGEST} characters)")
    return text


def selection(tags: Mapping[str, str]) -> str:
    """A filter for resources with these tags that spotctl created."""
    conditions = [f'labels.{_checked_key(key)} = "{label_value(key, value)}"' for key, value in sorted(tags.items())]
    return " ".join(f"({condition})" for condition in [f"labels.{REQUEST_LABEL}:*", *conditions])


def description_of(tags: Mapping[str, str]) -> str:
    """The description of a resource that has no labels."""
    return json.dumps(dict(tags), sort_keys=True)


def described(description: str) -> dict[str, str] | None:
    """The tags in a description; None if spotctl did not write it."""
    try:
        tags = json.loads(description)
    except ValueError:
        return None
    is_ours = isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values())
    return tags if is_ours else None


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key) or key in _OWN:
        raise BadRequest(f"tag {key!r} cannot be a label of Google Cloud; use lowercase letters, digits, _ and -")
    return key


def _escaped(character: str) -> str:
    return "".join(f"_{byte:02x}" for byte in character.encode())


def _value(text: str) -> str:
    return (
        _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1", "replace").decode(errors="replace")
    )
