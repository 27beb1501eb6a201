"""YAML files: their content, the line of each part, bounds on their size, and mistakes in them as
one-line errors.

Plain words mean what they mean in YAML 1.2, as in editors: `06:00`, `2026-01-20`, `0x10` and `no`
are texts.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import yaml

from spotctl.home.errors import BadRequest

Loc = tuple[int | str, ...]
"""Where a part is: keys and positions from the top, such as `("resources", "regions", 0)`."""

MAX_BYTES = 1_000_000
MAX_LEVELS = 50
MAX_DOCUMENTS = 100
MAX_PARTS = 20_000
"""Keys, values and list items, with aliases written out. A job file has about 60, a large scenario
a few hundred."""


@dataclass(frozen=True)
class YamlFile:
    """A file's content and positions. `content` is None for an empty file, `root` where positions
    are unknown.

    `path` is only a name if the content was not written by a person, and has no lines that an error
    could point to.
    """

    path: Path
    content: object
    root: yaml.Node | None
    has_lines: bool = True
    spelled: Mapping[Loc, Loc] = field(default_factory=dict)
    """For parts that were moved, where they are in the file."""
    options: Mapping[Loc, str] = field(default_factory=dict)
    """For parts that the command line gives, the option."""

    def place(self, loc: Loc) -> str:
        """Where a part is, as errors show it: `job.yaml:3`, or an option."""
        for depth in range(len(loc), 0, -1):
            if option := self.options.get(loc[:depth]):
                return option
        return f"{self.path}:{self.line(loc)}" if self.has_lines else str(self.path)

    def line(self, loc: Loc = ()) -> int:
        """The line on which a part begins; for a part that is missing, the line of what should
        contain it.
        """
        line, node = 1, self.root
        for step in self.spelled.get(loc, loc):
            child = _part(node, step)
            if child is None:
                break
            line, node = child
        return line

    def moved(self, old: Loc, new: Loc) -> "YamlFile":
        """The file with a part in another place, where its problems have its old name and line.

        BadRequest: the other place has a part already, or something that cannot hold one.
        """
        content: Any = copy.deepcopy(self.content)
        before: Any = content
        holder: Any = content
        for step in old[:-1]:
            before = before[step]
        part = before.pop(old[-1])

        for step in new[:-1]:
            if holder.get(step) is None:
                holder[step] = {}
            holder = holder[step]

        if not isinstance(holder, dict) or new[-1] in holder:
            other = new if isinstance(holder, dict) else new[:-1]
            other = self.spelled.get(other, other)
            message = (
                f"is another spelling of {'.'.join(map(str, new))}, and "
                f"{'.'.join(map(str, other))} is there too"
            )
            raise refusal(self, [Problem(old, f"{message}; keep one of them")])

        holder[new[-1]] = part
        return replace(self, content=content, spelled={**self.spelled, new: old})

    def texts(self, key: str) -> dict[str, str]:
        """The scalar values of a top-level mapping as they are written, before YAML gives them a
        type.
        """
        child = _part(self.root, key)
        pairs = child[1].value if child and isinstance(child[1], yaml.MappingNode) else []
        null = f"{_CORE}null"
        return {
            name.value: value.value
            for name, value in pairs
            if isinstance(value, yaml.ScalarNode)
            and value.tag != null
            and (key, name.value) not in self.options
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake, and the part of the file with it."""

    loc: Loc
    message: str
    is_missing: bool = False


def read(path: Path) -> YamlFile:
    """Reads and parses a file; raises BadRequest if it is unreadable, too large or not YAML."""
    (file,) = read_all(path, most=1)
    return file


def read_all(path: Path, most: int = MAX_DOCUMENTS) -> list[YamlFile]:
    """The documents of a file, which lines --- separate. BadRequest: as `read`, or there are more
    than `most`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not UTF-8 text") from None
    return _documents(text, path, most)


def parse(text: str, path: Path) -> YamlFile:
    """Parses the text of a file; `path` is for error messages and need not exist."""
    (file,) = _documents(text, path, 1)
    return file


def _documents(text: str, path: Path, most: int) -> list[YamlFile]:
    if len(text) > MAX_BYTES:
        raise BadRequest(
            f"{path}: is larger than {MAX_BYTES / 1e6:g} MB; split it, or remove what is not needed"
        )
    try:
        loader = _Loader(text)
        files = list[YamlFile]()
        while loader.check_node():
            if len(files) == most:
                event: yaml.Event = loader.peek_event()  # type: ignore[no-untyped-call]
                kept = "one, without a line ---" if most == 1 else f"{most}"
                raise _Unusable(event, f"another document begins; keep {kept}")
            root = loader.get_node()
            assert root is not None
            _check_nodes(root, loader)
            files.append(YamlFile(path, loader.construct_document(root), root))
        return files or [YamlFile(path, None, None)]
    except _Unusable as error:
        raise BadRequest(f"{path}:{error.line}: {error}") from None
    except (ValueError, OverflowError):
        # Of all that is not YAML, PyYAML itself fails only at the number of such an escape.
        line = loader.line + 1
        raise BadRequest(
            f"{path}:{line}: is not YAML: an escape such as \\U00110000 is no character; correct it"
        ) from None
    except yaml.MarkedYAMLError as error:
        begun, mark = error.context_mark, error.problem_mark
        message = ", ".join(filter(None, (error.context, error.problem)))
        if begun and mark and begun.line != mark.line:
            message += f" (begun on line {begun.line + 1})"

        cure = next((f"; {cure}" for sign, cure in _CURES if sign in message), "")
        said = " ".join(message.split()) + cure
        at = mark or begun
        line = at.line + 1 if at else 1
        raise BadRequest(f"{path}:{line}: is not YAML: {said}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadRequest(
            f"{path}:{line}: is not YAML: the character {chr(error.character)!a}; delete it"
        ) from None


def refusal(file: YamlFile, problems: Iterable[Problem]) -> BadRequest:
    """The error to raise, with all problems of the file in their order.

    A missing key comes last: most often the key is there, misspelled.
    """
    lines = []
    for problem in sorted(problems, key=lambda each: (each.is_missing, file.line(each.loc))):
        name = ".".join(map(str, file.spelled.get(problem.loc, problem.loc))) or "the file"
        lines.append(f"{file.place(problem.loc)}: {name}: {problem.message}")

    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    error = BadRequest(f"{lines[0]}{more}")
    error.mistakes = tuple(dict.fromkeys(lines))
    return error


def shown(value: object) -> str:
    """A value as the user will recognize it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


class _Unusable(Exception):
    """YAML that no file here may have: beyond a bound, a key twice, or a tag that does not fit its
    value.
    """

    def __init__(self, node: yaml.Node | yaml.Event, message: str) -> None:
        super().__init__(message)
        self.line = node.start_mark.line + 1 if node.start_mark else 1


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the plain words of YAML 1.2: under 1.1, `10:30` is 630 and `no` is
    false.

    It stops at the first node beyond a bound, before the rest of the file costs memory.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = self._parts = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._parts += 1
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if self._parts > MAX_PARTS:
            raise _Unusable(event, f"has more than {MAX_PARTS:,} parts up to here; remove some")

        if self._level > MAX_LEVELS:
            raise _Unusable(
                event, f"is nested deeper than {MAX_LEVELS} levels; write it in fewer levels"
            )

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
    (
        "float",
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*|(?=[eE])))([eE][-+]?[0-9]+)?",
        [*"-+.0123456789"],
    ),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", [*"-+."]),
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("merge", r"<<", ["<"]),
)


_CORE = "tag:yaml.org,2002:"


_STRING = f"{_CORE}str"


_PLAIN_TAGS = {_CORE + tag for tag, *_ in _PLAIN_WORDS}


_Loader.yaml_implicit_resolvers = {}


for _tag, _pattern, _first in _PLAIN_WORDS:
    _Loader.add_implicit_resolver(_CORE + _tag, re.compile(rf"(?:{_pattern})\Z"), _first)


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag in (*_PLAIN_TAGS, _STRING, f"{_CORE}seq", f"{_CORE}map", None)
}
"""Sets, dates and bytes are none of the values that these files may have."""


def _part(node: yaml.Node | None, step: int | str) -> tuple[int, yaml.Node] | None:
    """A part's line and node; for a key, the key's own line, because a value of many lines begins
    below it.
    """
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item

    # Pairs merged from an anchor come before the mapping's own, which win.
    pairs = reversed(node.value) if isinstance(node, yaml.MappingNode) else ()
    for key, value in pairs:
        if key.value == str(step):
            return key.start_mark.line + 1, value
    return None


def _check_nodes(root: yaml.Node, loader: _Loader) -> None:
    """Refuses aliases that expand to too much, repeated keys, where PyYAML would take the last, and
    unfit tags.
    """
    sizes: dict[int, tuple[float, int]] = {}

    def size(node: yaml.Node) -> tuple[float, int]:
        """How many parts and levels a node has with its aliases written out; infinite if it
        contains itself.
        """
        if id(node) in sizes:
            return sizes[id(node)]

        sizes[id(node)] = inf, 0
        parts, levels = 1.0, 1
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        else:
            children = node.value if isinstance(node, yaml.SequenceNode) else []

        for child in children:
            below, deep = size(child)
            parts, levels = parts + below, max(levels, deep + 1)

        if parts > MAX_PARTS:
            why = "refers to itself" if parts == inf else f"expands to {parts:,.0f} parts"
            raise _Unusable(node, f"{why} through aliases; write it out without them")
        if levels > MAX_LEVELS + 1:
            raise _Unusable(
                node,
                f"is nested deeper than {MAX_LEVELS} levels through aliases; write it in fewer",
            )

        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_key(node)
        elif isinstance(node, yaml.ScalarNode):
            _refuse_unfit_scalar(node, loader)

        sizes[id(node)] = parts, levels
        return parts, levels

    size(root)


def _refuse_repeated_key(mapping: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode)):
        if key.value in lines:
            raise _Unusable(
                key, f"{key.value}: duplicate key, first on line {lines[key.value]}; keep one"
            )
        lines[key.value] = key.start_mark.line + 1


def _refuse_unfit_scalar(node: yaml.ScalarNode, loader: _Loader) -> None:
    """Refuses a tag such as `!!int` before what is none, where PyYAML would fail or give values of
    YAML 1.1.
    """
    meant: str = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    is_fit = node.tag in (meant, _STRING) or (node.tag, meant) == (_CORE + "float", _CORE + "int")
    if not is_fit and node.tag in _PLAIN_TAGS:
        name = node.tag.removeprefix(_CORE)
        raise _Unusable(
            node,
            f"{shown(node.value)} does not fit its tag !!{name}; correct it, or remove the tag",
        )
    if any("\ud800" <= letter <= "\udfff" for letter in node.value):
        raise _Unusable(
            node, "contains half a character, such as \\ud800; delete it, or write the whole one"
        )


_CURES = (
    (r"'\t'", "indent with spaces"),
    ("mapping values are not allowed", "put a value that contains a colon and a space in quotes"),
    ("undefined alias", "define it above, or put a value that begins with * in quotes"),
    (f"{_CORE}merge", "put << in quotes"),
    (
        "could not determine a constructor",
        "remove the tag, or put a value that begins with ! in quotes",
    ),
    ("for merging", "write <<: *NAME, where &NAME marks a mapping"),
    ("unhashable key", "put a value that begins with { or [ in quotes"),
    ("cannot start any token", "put a value that begins with it in quotes"),
)


_LONGEST = 60
