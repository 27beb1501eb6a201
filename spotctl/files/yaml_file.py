"""YAML files: their content, the line of each part, bounds on their size, and one-line errors.

Plain words mean what they mean in YAML 1.2, as in editors: `06:00`, `2026-01-20`, `0x10` and `no` are texts.
"""

import re
from dataclasses import dataclass
from math import inf
from pathlib import Path

import yaml

from spotctl.home.errors import BadRequest

Loc = tuple[int | str, ...]
"""Where a part is: keys and positions from the top, such as `("resources", "regions", 0)`."""

MOST_BYTES = 1_000_000
MOST_LEVELS = 50
MOST_PARTS = 20_000
"""Keys, values and list items, with aliases written out. A job file has about 60, a large scenario a few hundred."""


@dataclass(frozen=True)
class YamlFile:
    """A file's content and positions. `content` is None for an empty file, `root` where positions are unknown.

    `path` is only a name if the content was not written by a person, and has no lines that an error could point to.
    """

    path: Path
    content: object
    root: yaml.Node | None
    has_lines: bool = True

    def place(self, loc: Loc) -> str:
        """Where a part is, as errors show it: `job.yaml:3`."""
        return f"{self.path}:{self.line(loc)}" if self.has_lines else str(self.path)

    def line(self, loc: Loc = ()) -> int:
        """The line on which a part begins; for a part that is missing, the line of what should contain it."""
        line, node = 1, self.root
        for step in loc:
            child = _part(node, step)
            if child is None:
                break
            line, node = child
        return line

    def texts(self, key: str) -> dict[str, str]:
        """The scalar values of a top-level mapping as they are written, before YAML gives them a type."""
        child = _part(self.root, key)
        pairs = child[1].value if child and isinstance(child[1], yaml.MappingNode) else []
        null = "tag:yaml.org,2002:null"
        return {
            name.value: value.value for name, value in pairs if isinstance(value, yaml.ScalarNode) and value.tag != null
        }


def read(path: Path) -> YamlFile:
    """Reads and parses a file; raises BadRequest if it is unreadable, too large or not YAML."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text") from None
    return parse(text, path)


def parse(text: str, path: Path) -> YamlFile:
    """Parses the text of a file; `path` is for error messages and need not exist."""
    if len(text) > MOST_BYTES:
        raise BadRequest(f"{path}: is larger than {MOST_BYTES / 1e6:g} MB; split it, or remove what is not needed")
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        _check_nodes(root, path)
        return YamlFile(path, None if root is None else loader.construct_document(root), root)
    except _TooLarge as error:
        raise BadRequest(f"{path}:{error.line}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadRequest(f"{path}:{mark.line + 1 if mark else 1}: is not YAML: {_problem(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadRequest(f"{path}:{line}: is not YAML: the character {chr(error.character)!a}; delete it") from None


class _TooLarge(Exception):
    """A bound on size, depth or expansion is exceeded."""

    def __init__(self, node: yaml.Node | yaml.Event, message: str) -> None:
        super().__init__(message)
        self.line = node.start_mark.line + 1 if node.start_mark else 1


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the plain words of YAML 1.2: under 1.1, `10:30` is 630 and `no` is false.

    It stops at the first node beyond a bound, before the rest of the file costs memory.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = self._parts = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._parts += 1
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if self._parts > MOST_PARTS:
            raise _TooLarge(event, f"has more than {MOST_PARTS:,} parts up to here; remove some")
        if self._level > MOST_LEVELS:
            raise _TooLarge(event, f"is nested deeper than {MOST_LEVELS} levels; write it in fewer levels")
        self._level += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self._level -= 1


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
    """A part's line and node; for a key, the key's own line, because a value of many lines begins below it."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    if isinstance(node, yaml.MappingNode):
        # Pairs merged from an anchor come before the mapping's own, which win.
        pairs = reversed(node.value)
        return next(((key.start_mark.line + 1, value) for key, value in pairs if key.value == str(step)), None)
    return None


def _check_nodes(root: yaml.Node | None, path: Path) -> None:
    """Refuses repeated keys, where PyYAML would take the last, and aliases that expand to too much."""
    sizes: dict[int, float] = {}

    def size(node: yaml.Node) -> float:
        """How many parts a node has with its aliases written out; infinite if it contains itself."""
        if id(node) in sizes:
            return sizes[id(node)]
        sizes[id(node)] = inf
        total = 1.0
        for child in _children(node):
            total += size(child)
        if total > MOST_PARTS:
            why = "refers to itself" if total == inf else f"expands to {total:,.0f} parts"
            raise _TooLarge(node, f"{why} through aliases; write it out without them")
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_key(node, path)
        sizes[id(node)] = total
        return total

    if root is not None:
        size(root)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    return [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []


def _refuse_repeated_key(mapping: yaml.MappingNode, path: Path) -> None:
    lines: dict[str, int] = {}
    for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode)):
        line = key.start_mark.line + 1
        if key.value in lines:
            raise BadRequest(f"{path}:{line}: {key.value}: duplicate key, first on line {lines[key.value]}; keep one")
        lines[key.value] = line


_CURES = (
    (r"'\t'", "indent with spaces"),
    ("mapping values are not allowed", "put a value that contains a colon and a space in quotes"),
    ("but found another document", "keep one, without a line ---"),
    ("undefined alias", "define it above, or put a value that begins with * in quotes"),
    ("could not determine a constructor", "put a value that begins with ! in quotes"),
    ("unhashable key", "put a value that begins with { or [ in quotes"),
    ("cannot start any token", "put a value that begins with it in quotes"),
)


def _problem(error: yaml.MarkedYAMLError) -> str:
    message = ", ".join(part for part in (error.context, error.problem) if part)
    if error.context_mark and error.problem_mark and error.context_mark.line != error.problem_mark.line:
        message += f" (begun on line {error.context_mark.line + 1})"
    cure = next((f"; {cure}" for sign, cure in _CURES if sign in message), "")
    return " ".join(message.split()) + cure
