"""YAML as people write it: the content, the line of each part of it, and what is wrong with it in one line.

Plain words mean what they mean in YAML 1.2, which editors go by: `06:00`, `2026-01-20` and `no` are texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from spotctl.errors import BadRequest

Loc = Sequence[int | str]
"""Where a part is: keys and positions from the top, such as `("resources", "regions", 0)`."""


@dataclass(frozen=True)
class YamlFile:
    """What a file says, and where it says it. An empty one says None."""

    path: Path
    content: object
    root: yaml.Node | None

    def line(self, loc: Loc = ()) -> int:
        """The line on which a part begins; of a part that is not there, the line of what it should be in."""
        line, node = 1, self.root
        for step in loc:
            found = _part(node, step)
            if found is None:
                break
            line, node = found
        return line


def read(path: Path) -> YamlFile:
    """A file that can be read and is YAML."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not text in UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> YamlFile:
    """The same of a text that is, or will be, a file."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        _refuse_repetition(root, path)
        return YamlFile(path, None if root is None else loader.construct_document(root), root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadRequest(f"{path}:{mark.line + 1 if mark else 1}: is not YAML: {_problem(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadRequest(f"{path}:{line}: is not YAML: the character {chr(error.character)!a}; delete it") from None
    except RecursionError:
        raise BadRequest(f"{path}: is nested too deeply; write it in fewer levels") from None


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader for the plain words of YAML 1.2; by 1.1, `10:30` would be 630 and `no` false."""


# A number that begins with a zero is a name, and so is one that is too long to count anything.
_PLAIN_WORDS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(0|[1-9][0-9]{0,17})", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*|(?=[eE])))([eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", [*"-+."]),
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("merge", r"<<", ["<"]),
)
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _PLAIN_WORDS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def _part(node: yaml.Node | None, step: int | str) -> tuple[int, yaml.Node] | None:
    """A part's line and node; that of a key is the key's, because a value of many lines begins below it."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    if isinstance(node, yaml.MappingNode):
        # What comes from an anchor stands before what was written here.
        pairs = reversed(node.value)
        return next(((key.start_mark.line + 1, value) for key, value in pairs if key.value == str(step)), None)
    return None


def _refuse_repetition(root: yaml.Node | None, path: Path) -> None:
    """YAML forbids a key to stand twice in one mapping; PyYAML takes the last."""
    left, seen = [root], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            left += [value for _, value in node.value]
            _refuse_repeated_key(node, path)


def _refuse_repeated_key(mapping: yaml.MappingNode, path: Path) -> None:
    lines: dict[str, int] = {}
    for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode)):
        line = key.start_mark.line + 1
        if key.value in lines:
            raise BadRequest(f"{path}:{line}: {key.value}: stands here again, after line {lines[key.value]}; keep one")
        lines[key.value] = line


_CURES = (
    (r"'\t'", "indent with spaces"),
    ("mapping values are not allowed", "put a text that contains a colon and a space in quotes"),
    ("but found another document", "keep one, without a line ---"),
    ("undefined alias", "define it above, or put a text that begins with * in quotes"),
    ("could not determine a constructor", "put a text that begins with ! in quotes"),
    ("unhashable key", "put a text that begins with { or [ in quotes"),
    ("cannot start any token", "put a text that begins with it in quotes"),
)


def _problem(error: yaml.MarkedYAMLError) -> str:
    said = ", ".join(part for part in (error.context, error.problem) if part)
    if error.context_mark and error.problem_mark and error.context_mark.line != error.problem_mark.line:
        said += f" (begun on line {error.context_mark.line + 1})"
    cure = next((f"; {cure}" for sign, cure in _CURES if sign in said), "")
    return " ".join(said.split()) + cure
