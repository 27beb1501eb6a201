"""Changes to a script so that evictions lose no work: lines to replace, and lines to insert."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.files.script.loop import TrainingLoop
from spotctl.files.script.places import Head, SaveCall
from spotctl.files.script.source import KERAS, LIGHTNING, TRANSFORMERS, ScriptSource

REPLACE, INSERT = "replace", "insert"
_FOLDER = 'os.environ.get("SPOTCTL_CHECKPOINT_DIR", ".")'


@dataclass(frozen=True, slots=True)
class Change:
    """New text for a line, or a new line that comes before it; all numbers are those of the unchanged script."""

    line: int
    act: str
    text: str


def applied(text: str, changes: Sequence[Change]) -> str:
    """The script with its changes."""
    lines = text.splitlines()
    for change in sorted(changes, key=lambda change: (change.line, change.act == REPLACE), reverse=True):
        lines[change.line - 1 : change.line - (change.act == INSERT)] = change.text.splitlines()
    return "\n".join(lines) + "\n"


def resuming_changes(source: ScriptSource, loop: TrainingLoop) -> list[Change]:
    """Wraps the loop of a script that does not resume."""
    assert isinstance(loop.node, ast.For)
    code = source.code(loop.node.iter)
    states = "".join(f", {name}" for name in loop.states)
    return [
        _import(source, "from spotctl.integrations.loops import resuming"),
        *_replaced(source, loop.node.iter, f"resuming({code}{states})"),
    ]


def trainer_changes(source: ScriptSource, framework: str) -> list[Change]:
    """Gives a Trainer of Lightning or Hugging Face the callback that saves, and the newest checkpoint."""
    begins = "fit" if framework == LIGHTNING else "train"
    option = "ckpt_path" if framework == LIGHTNING else "resume_from_checkpoint"
    made = next((call for call in source.calls if source.called(call).rpartition(".")[2].endswith("Trainer")), None)
    starts = [call for call in source.calls if source.called(call).rpartition(".")[2] == begins]
    # `model.train()` only sets a mode: the Trainer's own is told by its name.
    parent = None if made is None else source.parents.get(made)
    trainers = {source.dotted(target) for target in parent.targets} if isinstance(parent, ast.Assign) else set()
    start = next((call for call in starts if source.called(call).rpartition(".")[0] in trainers), None)
    if made is None or start is None:
        return []
    module = "lightning" if framework == LIGHTNING else "transformers"
    return [
        _import(source, f"from spotctl.integrations.{module} import SpotCallback"),
        *_with_callback(source, made, "spot := SpotCallback()"),
        *_with_option(source, start, option, "spot.newest()"),
    ]


def keras_changes(source: ScriptSource, _: str) -> list[Change]:
    """Gives `fit` the callback of Keras that saves after each epoch and resumes."""
    start = next(
        (call for call in source.calls if isinstance(call.func, ast.Attribute) and call.func.attr == "fit"), None
    )
    if start is None:
        return []
    keras = next((name for name, full in source.aliases.items() if full in ("keras", "tensorflow.keras")), "")
    tensorflow = next((name for name, full in source.aliases.items() if full == "tensorflow"), "tensorflow")
    backup = f"{keras or f'{tensorflow}.keras'}.callbacks.BackupAndRestore({_FOLDER})"
    return [*_with_os(source), *_with_callback(source, start, backup)]


def redirecting_changes(source: ScriptSource, saved: Sequence[SaveCall]) -> list[Change]:
    """Sends what a script saves under a fixed name to the folder that spotctl keeps."""
    literals = {
        save.place.literal for save in saved if save.place.head is Head.LITERAL and save.place.literal is not None
    }
    edits = [
        change
        for literal in sorted(literals, key=lambda node: node.lineno)
        for change in _replaced(source, literal, f'{_FOLDER} + "/{str(literal.value).lstrip("./")}"')
    ]
    return [*_with_os(source), *edits] if edits else []


def _import(source: ScriptSource, line: str) -> Change:
    """A line after the last import at the top of the script."""
    imports = [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if imports:
        return Change((imports[-1].end_lineno or imports[-1].lineno) + 1, INSERT, line)
    first = source.tree.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return Change((first.end_lineno or 1) + 1 if is_docstring else first.lineno, INSERT, line)


def _with_os(source: ScriptSource) -> list[Change]:
    named = any(
        isinstance(node, ast.Import) and any(alias.name == "os" for alias in node.names) for node in source.tree.body
    )
    return [] if named else [_import(source, "import os")]


def _with_callback(source: ScriptSource, call: ast.Call, callback: str) -> list[Change]:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "callbacks"), None)
    if given is None:
        return _with_argument(source, call, f"callbacks=[{callback}]")
    if isinstance(given, ast.List):
        code = source.code(given)
        return _replaced(source, given, f"[{callback}{', ' if given.elts else ''}{code[1:]}")
    return _replaced(source, given, f"[{callback}, *({source.code(given)} or [])]")


def _with_option(source: ScriptSource, call: ast.Call, name: str, value: str) -> list[Change]:
    given = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if given is not None:
        return _replaced(source, given, value)
    return _with_argument(source, call, f"{name}={value}")


def _with_argument(source: ScriptSource, call: ast.Call, argument: str) -> list[Change]:
    """A call with one more argument, written after its last."""
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    ends = [(part.end_lineno or 0, part.end_col_offset or 0) for part in parts]
    close = (call.end_lineno or call.lineno, (call.end_col_offset or 1) - 1)
    if not ends:
        return [_changed_line(source, close[0], close[1], close[1], argument)]
    line, column = max(ends)
    rest = source.lines[line - 1].encode()[column : close[1] if line == close[0] else None]
    # A last argument in parentheses of its own ends behind them.
    column += rest.rindex(b")") + 1 if b")" in rest else 0
    return [_changed_line(source, line, column, column, f", {argument}")]


def _replaced(source: ScriptSource, node: ast.expr, text: str) -> list[Change]:
    """The lines of an expression with another in its place, which is on one line."""
    first, last = node.lineno, node.end_lineno or node.lineno
    if first == last:
        return [_changed_line(source, first, node.col_offset, node.end_col_offset or 0, text)]
    before = source.lines[first - 1].encode()[: node.col_offset].decode()
    after = source.lines[last - 1].encode()[node.end_col_offset or 0 :].decode()
    joined = " ".join(part.strip() for part in text.splitlines())
    return [
        Change(first, REPLACE, f"{before}{joined}{after}"),
        *(Change(line, REPLACE, "") for line in range(first + 1, last + 1)),
    ]


def _changed_line(source: ScriptSource, line: int, begin: int, end: int, text: str) -> Change:
    # The tree counts bytes.
    old = source.lines[line - 1].encode()
    return Change(line, REPLACE, (old[:begin] + text.encode() + old[end:]).decode())


def checked(source: ScriptSource, changes: Sequence[Change]) -> list[Change]:
    """The changes, if the script is still Python with them and no two replace the same line; otherwise none."""
    replaced = [change.line for change in changes if change.act == REPLACE]
    try:
        ast.parse(applied(source.text, changes))
    except SyntaxError:
        return []
    return list(changes) if len(set(replaced)) == len(replaced) else []


FRAMEWORK_CHANGES = {
    LIGHTNING: trainer_changes,
    TRANSFORMERS: trainer_changes,
    KERAS: keras_changes,
}
"""How scripts whose framework has the loop are changed."""
