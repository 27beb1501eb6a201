"""The documentation's reference, and whether its tables of JSON have what commands print."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import Any
from unittest.mock import patch

DOCS = Path(__file__).parents[1] / "docs"


@cache
def reference() -> dict[str, Any]:
    """What docs/reference.py defines."""
    with patch.object(sys, "path", [str(DOCS), *sys.path]):
        return run_path(str(DOCS / "reference.py"))


def assert_documented(command: str, answer: object) -> None:
    """The recorded answer of a command that needs a cloud has the keys of this one, and their
    types.
    """
    recorded = json.loads((DOCS / "json_of_clouds.json").read_text(encoding="utf-8"))[command][
        "answer"
    ]
    described, found = (reference()["types_of"](one) for one in (recorded, answer))
    unknown = {key: types for key, types in found.items() if not types <= described.get(key, set())}
    assert not unknown, (
        f"spotctl {command} --json prints what docs/json_of_clouds.json has not: {unknown}"
    )
    empty = tuple(
        f"{key}[]" for key, types in found.items() if types == {"list"} and f"{key}[]" not in found
    )
    missing = [key for key in described if key not in found and not key.startswith(empty or "\0")]
    assert not missing, (
        f"docs/json_of_clouds.json has what spotctl {command} --json does not print: {missing}"
    )


def assert_explained(words: Sequence[str], answer: object) -> None:
    """Every key that a command prints with `--json` has a meaning in the columns of its answer."""
    defined = reference()
    writer = defined["writers"]().get(
        defined["_heading"](" ".join(word for word in words if word != "--json"))
    )
    unknown = [] if writer is None else defined["without_meaning"](writer, answer)
    assert not unknown, f"spotctl {' '.join(words)}: {writer} has no meaning for {unknown}"
