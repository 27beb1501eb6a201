"""Compares recordings: what is equal, what a listed reason explains, and the differences that
nothing explains.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.golden.normalize import text_of

REASONS = Path(__file__).with_name("reasons.toml")


@dataclass(frozen=True)
class Reason:
    """Why the answers of some commands differ.

    `commands` is a pattern of names as the shell has them, with `*`. With `lines`, a regular
    expression, the reason explains only the lines that it finds; with `now`, all differences of
    those commands whose present answer it finds; without both, all differences of all these
    commands. With `key`, it explains this key of the JSON that they print.
    """

    commands: str
    why: str
    lines: str = ""
    now: str = ""
    key: str = ""


@dataclass
class Comparison:
    """The commands, by what became of them."""

    equal: list[str] = field(default_factory=list)
    explained: dict[str, list[Reason]] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)
    """The unified diff of each command, of the lines that no reason explains."""
    stale: list[Reason] = field(default_factory=list)
    """Reasons that explain nothing."""


def reasons(path: Path = REASONS) -> list[Reason]:
    """Reads the file of reasons."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    found = [Reason(**entry) for entry in content.get("reason", ())]
    for reason in found:
        re.compile(reason.lines)
        re.compile(reason.now)
        if not reason.why.strip():
            raise SystemExit(f"{path}: the reason for {reason.commands!r} says nothing in `why`")
    return found


def texts(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The normalized answer of each command, by the name of its scenario and its own."""
    return {
        f"{record['scenario']}: {step['title']}": text_of(step, record)
        for record in records
        for step in record["steps"]
    }


def compared(
    before: Mapping[str, str], now: Mapping[str, str], known: Sequence[Reason]
) -> Comparison:
    """Compares the answers of two trees to the same commands."""
    result, used = Comparison(), set[Reason]()
    for name in before.keys() | now.keys():
        old, new = before.get(name, "not recorded\n"), now.get(name, "not recorded\n")
        if old == new:
            result.equal.append(name)
            continue
        matching = [
            one for one in known if fnmatchcase(name, one.commands) and re.search(one.now, new)
        ]
        for reason in [one for one in matching if one.key]:
            matching.remove(reason)
            if (without := _without_key(new, reason.key)) != _without_key(new, ""):
                used.add(reason)
                old, new = _without_key(old, reason.key), without
                result.explained[name] = [*result.explained.get(name, ()), reason]
        if old == new:
            continue
        lines = list(unified_diff(old.splitlines(), new.splitlines(), "before", "now", lineterm=""))
        changed = [line for line in lines[2:] if line[0] in "+-"]
        helpful = [
            reason for reason in matching if any(_explains(reason, line) for line in changed)
        ]
        used.update(helpful)
        left = [line for line in changed if not any(_explains(reason, line) for reason in helpful)]
        if left:
            result.differing[name] = "\n".join(_without(lines, helpful))
            result.explained.pop(name, None)
        else:
            result.explained[name] = [*result.explained.get(name, ()), *helpful]
    result.stale = [reason for reason in known if reason not in used]
    return result


def _without_key(answer: str, key: str) -> str:
    """An answer whose JSON lacks a key, at any depth."""
    parts = re.split(r"(?m)^(--- \S+\n)", answer)
    for number, part in enumerate(parts):
        with suppress(ValueError):
            parts[number] = json.dumps(_lacking(json.loads(part), key), indent=1) + "\n"
    return "".join(parts)


def _lacking(value: object, key: str) -> object:
    match value:
        case dict():
            return {name: _lacking(one, key) for name, one in value.items() if name != key}
        case list():
            # Of figures that real processes decide, a list has each kind once, and two kinds may
            # become one.
            pairs = [(one, _lacking(one, key)) for one in value]
            left = [lacking for _, lacking in pairs]
            return [
                new
                for number, (old, new) in enumerate(pairs)
                if new == old or new not in left[:number]
            ]
        case _:
            return value


def _explains(reason: Reason, line: str) -> bool:
    return not reason.lines or re.search(reason.lines, line[1:]) is not None


def _without(lines: Iterable[str], explained: Sequence[Reason]) -> list[str]:
    """The diff, with a mark at the lines that a reason explains."""
    return [
        f"{line}    (explained)"
        if line[0] in "+-"
        and not line.startswith(("+++", "---"))
        and any(_explains(one, line) for one in explained)
        else line
        for line in lines
    ]


def summary(result: Comparison, most: int) -> str:
    """The text for a person: counts, and at most `most` of the diffs that nothing explains."""
    parts = []
    for name, diff in sorted(result.differing.items())[:most]:
        parts.append(f"\n{name}\n{diff}\n")
    if len(result.differing) > most:
        parts.append(f"\nand {len(result.differing) - most} more (--most shows more of them):\n")
        parts += [f"  {name}\n" for name in sorted(result.differing)[most:]]
    for reason in dict.fromkeys(reason for found in result.explained.values() for reason in found):
        count = sum(reason in found for found in result.explained.values())
        parts.append(f"explained in {count} commands ({reason.commands}): {reason.why}\n")
    for reason in result.stale:
        parts.append(f"this reason explains nothing, remove it ({reason.commands}): {reason.why}\n")
    names = (result.equal, result.explained, result.differing)
    groups = sorted({_group(name) for kind in names for name in kind})
    for group in groups if len(groups) > 1 else ():
        parts.append(
            f"{group}: {_counts([sum(_group(name) == group for name in kind) for kind in names])}"
        )
    parts.append(_counts([len(kind) for kind in names]))
    return "".join(parts)


def _group(name: str) -> str:
    """The first word of the scenario that a command is in, such as `home` or `plans`."""
    return re.split(r"\W", name, maxsplit=1)[0]


def _counts(numbers: Sequence[int]) -> str:
    equal, explained, differing = numbers
    return f"{sum(numbers)} commands: {equal} equal, {explained} explained, {differing} differing\n"
