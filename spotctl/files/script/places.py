"""Where a script saves and loads: paths that come from arguments, from the environment, or from its
text.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spotctl.files.script.arguments import Argument
from spotctl.files.script.source import KERAS, ScriptSource, option_of

_MAX_STEPS = 30
_ARGUMENT_HOLDERS = ("args", "arguments", "opt", "opts", "options", "hparams", "config", "cfg")
"""Attributes under which objects keep the script's arguments."""

_JOINING = (
    "os.path.join",
    "pathlib.Path",
    "pathlib.PurePath",
    "str",
    "os.fspath",
    "os.path.expanduser",
    "open",
)
_CHOOSING = (
    *(
        "sorted",
        "max",
        "min",
        "list",
        "next",
        "iter",
        "reversed",
        "natsort.natsorted",
        "os.listdir",
        "os.scandir",
    ),
    *("glob.glob", "glob.iglob"),
)
"""Functions that list paths, or choose one: the place is that of their argument."""


class Head(StrEnum):
    """The beginning of a path."""

    ARGUMENT = "argument"
    VARIABLE = "variable"
    LITERAL = "literal"
    UNKNOWN = "unknown"


GIVEN = (Head.ARGUMENT, Head.VARIABLE)
"""Where a path begins that the command of a job gives."""


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """A path: the argument, variable or text that it begins with, and the text after that, where it
    is known.
    """

    head: Head
    name: str = ""
    tail: str = ""
    literal: ast.expr | None = None
    """The expression that a change replaces."""

    @property
    def own_path(self) -> str:
        """A path in the script's folder, as it is written; empty if it is another."""
        name = f"{self.name}{self.tail}".removeprefix("./")
        is_own = self.head is Head.LITERAL and re.fullmatch(r"\w[\w./*-]*", name)
        return name if is_own else ""


_UNKNOWN = ScriptPlace(Head.UNKNOWN)


@dataclass
class Places:
    """Follows an expression to the place that it means."""

    _source: ScriptSource
    _arguments: Mapping[str, Argument]

    def of(self, node: ast.expr | None, steps: int = 0) -> ScriptPlace:
        """The place that an expression means."""
        if steps > _MAX_STEPS:
            return _UNKNOWN

        place = _UNKNOWN
        match node:
            case ast.Constant(value=str() as text) if text:
                place = ScriptPlace(Head.LITERAL, text, literal=node)
            case ast.Attribute() | ast.Subscript():
                place = self._of_item(node, steps)
            case ast.BinOp(left, ast.Div() | ast.Add() as operator, right):
                between = "/" if isinstance(operator, ast.Div) else ""
                place = self._joined([left, right], steps + 1, between)
            case ast.JoinedStr(values=values):
                parts = [
                    part.value if isinstance(part, ast.FormattedValue) else part for part in values
                ]
                place = self._joined(parts, steps + 1, "")
            case ast.BoolOp() | ast.IfExp():
                values = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
                known = (self.of(value, steps + 1) for value in values)
                place = next((each for each in known if each.head is not Head.UNKNOWN), _UNKNOWN)
            case ast.Name():
                place = self._of_name(node, steps + 1)
            case ast.Call():
                place = self._of_call(node, steps + 1)

        return place

    def _of_item(self, node: ast.Attribute | ast.Subscript, steps: int) -> ScriptPlace:
        if isinstance(node, ast.Attribute):
            # args.output_dir, or self.args.output_dir.
            holder = node.value.attr if isinstance(node.value, ast.Attribute) else ""
            root = self._source.dotted(node).partition(".")[0]
            is_held = holder in _ARGUMENT_HOLDERS or root in _ARGUMENT_HOLDERS
            is_argument = is_held or isinstance(node.value, ast.Name)
            if is_argument and node.attr in self._arguments:
                return ScriptPlace(Head.ARGUMENT, node.attr)
            return self.of(self._source.own_values.get(node.attr), steps + 1)

        name = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(name, str):
            # One of several paths, such as the newest.
            return self.of(node.value, steps + 1)
        is_variable = self._source.dotted(node.value) == "os.environ"
        if is_variable or name in self._arguments:
            return ScriptPlace(Head.VARIABLE if is_variable else Head.ARGUMENT, name)

        # What the script gives to a setting.
        code, given = ast.unparse(node), list[ast.expr]()
        for other in self._source.nodes:
            if isinstance(other, ast.Assign) and ast.unparse(other.targets[0]) == code:
                given.append(other.value)
        return self.of(given[0], steps + 1) if given else _UNKNOWN

    def _of_call(self, call: ast.Call, steps: int) -> ScriptPlace:
        called = self._source.called(call)
        first = call.args[0] if call.args else None
        if called in ("os.environ.get", "os.getenv") and isinstance(first, ast.Constant):
            return ScriptPlace(Head.VARIABLE, str(first.value))
        if called in _CHOOSING and first is not None:
            return self.of(first, steps)

        holder = call.func.value if isinstance(call.func, ast.Attribute) else None
        if called in _JOINING or called.endswith((".joinpath", "().open")):
            if holder is not None and called.endswith((".joinpath", ".open")):
                return self._joined([holder, *call.args], steps, "/")
            parts = call.args[:1] if called == "open" else call.args
            return self._joined(parts, steps, "/")
        # Methods that return the same path: resolve(), absolute(), format(), with_suffix(".pt").
        if holder is not None:
            return self.of(holder, steps + 1)

        return _UNKNOWN

    def _joined(self, parts: list[ast.expr], steps: int, between: str) -> ScriptPlace:
        if not parts:
            return _UNKNOWN

        first = self.of(parts[0], steps + 1)
        texts = [first.tail]
        for part in parts[1:]:
            place = self.of(part, steps + 1)
            is_literal = place.head is Head.LITERAL
            texts.append(place.name + place.tail if is_literal else "*")

        has_more = len(texts) > 1
        tail = between.join(texts) if first.tail or has_more else ""
        if between and has_more and not tail.startswith(between):
            tail = between + tail
        return replace(first, tail=tail)

    def _of_name(self, name: ast.Name, steps: int) -> ScriptPlace:
        place, scope = self.of(self._value(name), steps + 1), self._source.scope(name)
        if place.head is not Head.UNKNOWN or isinstance(scope, ast.Module):
            return place
        known = scope.args
        ordered = [arg.arg for arg in (*known.posonlyargs, *known.args, *known.kwonlyargs)]
        if name.id not in ordered:
            return _UNKNOWN

        # click, typer and fire give the arguments to a function that the script itself gives none.
        callers = self._source.calls_of(scope.name)
        if name.id in self._arguments and not any(call.args or call.keywords for call in callers):
            return ScriptPlace(Head.ARGUMENT, name.id)
        return self._of_parameter(scope, name.id, ordered, steps)

    def _of_parameter(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        name: str,
        ordered: Sequence[str],
        steps: int,
    ) -> ScriptPlace:
        """The place that callers pass for a parameter, or that of its default."""
        position = ordered.index(name) - (ordered[0] == "self")
        # A class is called in place of its __init__.
        owner, called = self._source.parents.get(function), function.name
        if isinstance(owner, ast.ClassDef) and called == "__init__":
            called = owner.name

        for call in self._source.calls_of(called):
            given = option_of(call, name)
            if given is None and 0 <= position < len(call.args):
                given = call.args[position]
            place = self.of(given, steps + 1)
            if place.head is not Head.UNKNOWN:
                return place

        default: ast.expr | None = None
        last_first = reversed([*function.args.posonlyargs, *function.args.args])
        for parameter, value in zip(last_first, reversed(function.args.defaults), strict=False):
            if parameter.arg == name:
                default = value
        return self.of(default, steps + 1)

    def _value(self, name: ast.Name) -> ast.expr | None:
        """The expression that a name was last given before, in its function or in the module."""
        scope = self._source.scope(name)
        best: tuple[bool, int] | None = None
        value: ast.expr | None = None
        for node in self._source.nodes:
            targets, given = list[ast.expr | None](), None
            match node:
                case ast.Assign():
                    targets, given = [*node.targets], node.value
                case ast.NamedExpr() | ast.AnnAssign():
                    targets, given = [node.target], node.value
                case ast.withitem():
                    targets, given = [node.optional_vars], node.context_expr

            is_given = any(isinstance(each, ast.Name) and each.id == name.id for each in targets)
            line = getattr(node, "lineno", 0) or getattr(given, "lineno", 0)
            if given is None or not is_given:
                continue
            if line > name.lineno and self._source.scope(given) is scope:
                continue
            inner = self._source.scope(given)
            if inner is not scope and not isinstance(inner, ast.Module):
                continue
            if best is None or (inner is scope, line) >= best:
                best, value = (inner is scope, line), given

        return value


_BY_NAME = 99
"""The position of an argument that has none."""

_SAVES: dict[str, tuple[int, str]] = {
    "torch.save": (1, "f"),
    "joblib.dump": (1, "filename"),
    "pickle.dump": (1, "file"),
    "cloudpickle.dump": (1, "file"),
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"),
    "torch.distributed.checkpoint.save": (1, "checkpoint_id"),
    "torch.distributed.checkpoint.async_save": (1, "checkpoint_id"),
    "safetensors.torch.save_file": (1, "filename"),
    "shutil.copyfile": (1, "dst"),
    "shutil.copy": (1, "dst"),
}
"""Functions that save: the position and the name of the argument with the path, or its names."""
_SAVING_METHODS: dict[str, tuple[int, str]] = {
    "save_pretrained": (0, "save_directory"),
    "save_weights": (0, "filepath"),
    "save_model": (0, "output_dir"),
    "save_state": (0, "output_dir"),
    "save_checkpoint": (0, "filepath save_dir"),
    "ModelCheckpoint": (0, "dirpath filepath"),
    "BackupAndRestore": (0, "backup_dir"),
    "TrainingArguments": (0, "output_dir"),
    "Seq2SeqTrainingArguments": (0, "output_dir"),
}
_LOADS: dict[str, tuple[int, str]] = {
    "torch.load": (0, "f"),
    "joblib.load": (0, "filename"),
    "pickle.load": (0, "file"),
    "cloudpickle.load": (0, "file"),
    "numpy.load": (0, "file"),
    "torch.distributed.checkpoint.load": (1, "checkpoint_id"),
    "safetensors.torch.load_file": (0, "filename"),
}
_LOADING_METHODS: dict[str, tuple[int, str]] = {
    "load_model": (0, "filepath"),
    "load_weights": (0, "filepath"),
    "load_from_checkpoint": (0, "checkpoint_path"),
    "load_state": (0, "input_dir"),
    "load_checkpoint": (0, "load_dir"),
    "BackupAndRestore": (0, "backup_dir"),
    "fit": (_BY_NAME, "ckpt_path"),
    "train": (_BY_NAME, "resume_from_checkpoint"),
}
_DATABASE = {"sqlite3.connect": (0, "database")}
_WRITES, _READS = re.compile(r"\b(INSERT|REPLACE|UPDATE)\b"), re.compile(r"\bSELECT\b")
OWN_TOOLS = {"resuming", "SpotCallback", "LeaseIterator", "Gang"}
"""Tools of spotctl that save and resume."""


@dataclass(frozen=True, slots=True)
class SaveCall:
    """A call that saves or loads, and the path."""

    call: ast.Call
    place: ScriptPlace


def saves_and_loads(
    source: ScriptSource, places: Places, framework: str
) -> tuple[list[SaveCall], list[SaveCall]]:
    """The calls that save, and those that load, in the order of their lines."""
    methods = _SAVING_METHODS | ({"save": (0, "filepath")} if framework == KERAS else {})
    own = {name: at for name, at in methods.items() if name not in source.functions}
    saves = [*_matching(source, places, _SAVES, own)]
    saves = [*_renamed(source, places, saves), *saves]
    loads = [*_matching(source, places, _LOADS, _LOADING_METHODS)]

    # A database in which the script keeps its state: it writes there, and reads what it wrote.
    if _WRITES.search(source.text) and _READS.search(source.text):
        databases = [*_matching(source, places, _DATABASE, {})]
        saves, loads = saves or databases, loads + databases

    return saves, loads


def _renamed(source: ScriptSource, places: Places, saves: Sequence[SaveCall]) -> Iterator[SaveCall]:
    """The names that saved files have in the end, and the first ones as the renaming calls have
    them.
    """
    known = {(save.place.head, save.place.name, save.place.tail) for save in saves}
    for call in source.calls:
        match call:
            case ast.Call(args=[_, _] as ends) if source.called(call) in (
                "os.replace",
                "os.rename",
                "shutil.move",
            ):
                pass
            case ast.Call(func=ast.Attribute(value=path, attr="replace" | "rename"), args=[target]):
                ends = [path, target]
            case _:
                continue
        before, after = (places.of(end) for end in ends)
        if (before.head, before.name, before.tail) in known and after.head is not Head.UNKNOWN:
            yield SaveCall(call, after)
            yield SaveCall(call, before)


def _matching(
    source: ScriptSource,
    places: Places,
    functions: dict[str, tuple[int, str]],
    methods: dict[str, tuple[int, str]],
) -> Iterator[SaveCall]:
    for call in source.calls:
        name = source.called(call)
        at = functions.get(name)
        if at is None and "." in name:
            at = methods.get(name.rpartition(".")[2])
        if at is None:
            continue

        position, option = at
        given = option_of(call, *option.split())
        is_spread = any(isinstance(arg, ast.Starred) for arg in call.args)
        if given is None and position < len(call.args) and not is_spread:
            given = call.args[position]
        yield SaveCall(call, places.of(given))
