"""From the text of a script to what its job needs."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from spotctl.files.script.arguments import Argument, arguments_of
from spotctl.files.script.loop import TrainingLoop, loop_of
from spotctl.files.script.places import (
    GIVEN,
    OWN_TOOLS,
    Head,
    Places,
    SaveCall,
    saves_and_loads,
)
from spotctl.files.script.source import (
    LIGHTNING,
    TRANSFORMERS,
    LoopStatement,
    ScriptSource,
    libraries_of,
    nodes_of,
    option_of,
    read_source,
)

RESUMING = re.compile(
    r"^(?!no_)(.*(resume|checkpoint|ckpt|restore|restart|init_from)|(.*_)?(re)?load(_|$))"
)
"""Names of arguments from which a script resumes, and of variables in small letters."""

UNFINISHED = re.compile(r"(\.(tmp|temp|part|partial|new)|~)$")
"""Ends of names under which a file is written at first."""

_FITS = re.compile(r"\.fit$|(?i:trainer)\w*\.train$")


@dataclass(frozen=True, slots=True)
class Change:
    """New text for a line, or a new line that comes before it; all numbers are those of the
    unchanged script.
    """

    line: int
    act: str
    text: str


@dataclass(frozen=True)
class TrainingScript:
    """A script as its job sees it. Paths are relative to `folder`, where the job runs it."""

    source: ScriptSource
    path: Path
    """The script, as a command in its folder names it."""
    folder: Path
    framework: str
    install: str
    """The words after `pip install` for its libraries."""
    arguments: Mapping[str, Argument]
    saves: tuple[SaveCall, ...]
    """Those while it trains."""
    final_saves: tuple[SaveCall, ...]
    loads: tuple[SaveCall, ...]
    changes: tuple[Change, ...]
    uses_tools: bool
    """Whether the script resumes with a tool of spotctl."""
    seen: bool | None = None
    """Whether a trial saw that it resumes; None if it was not tried, or nothing was seen."""
    keep: tuple[str, ...] = ()
    """The places of its folder that the next machine needs."""
    is_plain: bool = False
    """Whether the job runs it without arguments for its checkpoint."""
    is_alone: bool = False
    """Whether it is one process without a launcher of ranks, although it may be several."""
    typed: tuple[str, ...] = ()
    """The words that the user gives it."""
    start: str = ""
    """The user's command up to the script; empty if Python runs it."""
    trusts: bool = False
    """Whether PyTorch may read whatever the script itself has saved, and not only weights."""
    saved: str = ""
    """A glob of the files in its folder that a trial saw it save, and that it may resume from."""

    @property
    def resumes(self) -> bool:
        """Whether the script, as it is, goes on where its last save ended, with the arguments that
        a job gives it.
        """
        if self.changes:
            return False
        if self.seen is not None:
            return self.seen
        return self.uses_tools or bool(self.saves and self.loads)

    @cached_property
    def compared(self) -> Mapping[str, set[str]]:
        """The words with which the script compares each of its names and arguments."""
        places = Places(self.source, self.arguments)
        words = defaultdict[str, set[str]](set)
        for compare in nodes_of(ast.Compare, self.source.tree):
            values = (getattr(side, "value", None) for side in compare.comparators)
            texts = {text for text in values if isinstance(text, str)}
            left = compare.left
            if texts:
                attribute, name = getattr(left, "attr", ""), getattr(left, "id", "")
                for each in {attribute, name, places.of(left).name}:
                    words[each] |= texts
        return words


_OUTSIDE = re.compile(r"(?:[/~]|\.\./)[\w.@+~-]*(?:/[\w.@+~-]+)+/?|\.\./[\w.@+~-]+")


def outside_paths(source: ScriptSource) -> list[str]:
    """Paths outside of its folder that a script names."""
    # A part of a formatted string is a path only at its beginning.
    parts = set()
    for node in source.nodes:
        if isinstance(node, ast.JoinedStr):
            for part in node.values[1:]:
                parts.add(part)
    texts = (
        node.value for node in source.nodes if isinstance(node, ast.Constant) and node not in parts
    )

    return sorted(
        {text for text in texts if isinstance(text, str) and _OUTSIDE.fullmatch(text)}
        - {"/dev/null"}
    )


def read_script(path: Path, folder: Path, text: str | None = None) -> TrainingScript:
    """The script, or another text in its place, read but not run."""
    source = read_source(path)
    if text is not None:
        source = ScriptSource(path, text, ast.parse(text, str(path)))

    arguments, loop = arguments_of(source), loop_of(source)
    framework, install = libraries_of(source, folder)
    places = Places(source, arguments)
    saves, finals = list[SaveCall](), list[SaveCall]()
    written, read = saves_and_loads(source, places, framework)
    for save in written:
        (finals if _is_after(source, save.call, loop) else saves).append(save)

    loads, switches = list[SaveCall](), list[list[Change]]()
    for load in read:
        if _resumes(load, (*saves, *finals), source, loop):
            switch = _switched(load, source, places)
            if switch is None:
                loads.append(load)
            else:
                switches.append(switch)

    own = [name for name in source.aliases.values() if name.startswith("spotctl.")]
    uses_tools = not OWN_TOOLS.isdisjoint(name.rpartition(".")[2] for name in own)
    changes, kept = list[Change](), list[str]()
    if not uses_tools:
        switched = next(iter(switches), []) if saves and (loads or switches) else None
        changes = _changes(source, framework, loop, switched)
        for save in (*saves, *finals):
            outermost, slash, _ = save.place.own_path.partition("/")
            kept += [f"{outermost}/" if slash else UNFINISHED.sub("", outermost)]

    return TrainingScript(
        source,
        path.resolve().relative_to(folder),
        folder,
        framework,
        install,
        arguments,
        tuple(saves),
        tuple(finals),
        tuple(loads),
        tuple(changes),
        uses_tools,
        keep=tuple(dict.fromkeys(filter(None, kept))),
    )


def _switched(load: SaveCall, source: ScriptSource, places: Places) -> list[Change] | None:
    """Has the script load what it saved, if that is there, where it loads for another value of a
    constant only: `if mode == "resume"` after `mode = "scratch"`. None if there is no such load.
    """
    below: ast.AST = load.call
    for outer in source.above(load.call):
        if isinstance(outer, ast.If) and below in outer.body:
            chooses, wanted = outer.test, "True"
            match outer.test:
                case ast.Compare(
                    left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str() as word)]
                ):
                    chooses, wanted = left, f'"{word}"'

            value = places.of(chooses)
            if value.literal is not None and wanted not in ("True", f'"{value.name}"'):
                saved = load.place
                if saved.head is not Head.LITERAL or "*" in saved.tail:
                    return []
                exists = f'os.path.exists("{saved.name}{saved.tail}")'
                text = f"{wanted} if {exists} else {source.code(value.literal)}"
                imports = {
                    name.name for node in nodes_of(ast.Import, source.tree) for name in node.names
                }
                needs = [] if "os" in imports else [_import(source, "import os")]
                return [*needs, *_replaced(source, value.literal, text)]
        below = outer

    return None


def _resumes(
    load: SaveCall, saves: Sequence[SaveCall], source: ScriptSource, loop: TrainingLoop | None
) -> bool:
    """Whether a load is of what the script itself saved, and comes before it trains."""
    if _is_after(source, load.call, loop):
        return False
    place = load.place
    if place.head is Head.UNKNOWN:
        return False
    is_stored = place.head is Head.VARIABLE and place.name.startswith(("SPOTCTL_", "OUTPUT_"))
    if is_stored or (place.head in GIVEN and RESUMING.search(place.name.lower())):
        return True
    return any((place.head, place.name) == (save.place.head, save.place.name) for save in saves)


def _is_after(source: ScriptSource, call: ast.Call, loop: TrainingLoop | None) -> bool:
    """Whether a call comes after the loop, in its function or in one that is called only after it;
    or after a fit.
    """
    if loop is None:
        # `model.train()` only sets a mode.
        fits = (other for other in source.calls if _FITS.search(source.called(other)))
        return any(fit.lineno < call.lineno for fit in fits) or _ends_it(source, call)

    called = source.called(call).rpartition(".")[2]
    if called == getattr(loop.scope, "name", "") or call in ast.walk(loop.node):
        return False

    scope = source.scope(call)
    if scope is loop.scope:
        return call.lineno > (loop.node.end_lineno or loop.node.lineno)
    if isinstance(scope, ast.Module):
        return call.lineno > loop.node.lineno

    callers = [other for other in source.calls_of(scope.name) if other is not call]
    outside = [other for other in callers if source.scope(other) is not scope]
    return bool(outside) and all(_is_after(source, other, loop) for other in outside)


def _ends_it(source: ScriptSource, call: ast.Call) -> bool:
    """Whether a call comes after a loop of its function, and neither it nor the function is in a
    loop: a script without an optimizer's loop has its result there."""
    scope = source.scope(call)
    callers = [] if isinstance(scope, ast.Module) else source.calls_of(scope.name)
    above = [outer for each in (call, *callers) for outer in source.above(each)]
    loops = [node for node in ast.walk(scope) if isinstance(node, LoopStatement)]
    ended = [node.end_lineno or 0 for node in loops if source.scope(node) is scope]
    is_in_loop = any(isinstance(outer, LoopStatement) for outer in above)
    return min(ended, default=call.lineno) < call.lineno and not is_in_loop


def _changes(
    source: ScriptSource,
    framework: str,
    loop: TrainingLoop | None,
    switched: list[Change] | None,
) -> list[Change]:
    """The lines with which the script may resume, if it is still Python with them; `switched` are
    those of a script that saves and loads, None of another.
    """
    changes = switched or []
    if framework in (LIGHTNING, TRANSFORMERS):
        changes = _trainer_changes(source, framework)
    elif switched is None and loop is not None and loop.states:
        # The loop of a script that does not resume is wrapped.
        assert isinstance(loop.node, ast.For)
        items = loop.node.iter
        given = ", ".join([source.code(items), *loop.states])
        changes = [
            _import(source, "from spotctl.integrations.loops import resuming"),
            *_replaced(source, items, f"resuming({given})"),
        ]

    replaced = [change.line for change in changes if change.act == REPLACE]
    try:
        ast.parse(applied(source.text, changes))
    except SyntaxError:
        return []
    return changes if len(set(replaced)) == len(replaced) else []


REPLACE, INSERT = "replace", "insert"


def applied(text: str, changes: Sequence[Change]) -> str:
    """The script with its changes."""
    lines = text.splitlines()
    # By their names, inserted lines come before the replaced one.
    ordered = sorted(changes, key=attrgetter("line", "act"))
    for change in reversed(ordered):
        lines[change.line - 1 : change.line - (change.act == INSERT)] = change.text.splitlines()
    return "\n".join(lines) + "\n"


def _trainer_changes(source: ScriptSource, framework: str) -> list[Change]:
    """Gives a Trainer of Lightning or Hugging Face the callback that saves, and the newest
    checkpoint.
    """
    module, begins, option = "transformers", "train", "resume_from_checkpoint"
    if framework == LIGHTNING:
        module, begins, option = "lightning", "fit", "ckpt_path"

    made = None
    for call in source.calls:
        if source.called(call).rpartition(".")[2].endswith("Trainer"):
            made = call
            break

    # `model.train()` only sets a mode; the call that trains is one on the Trainer's name.
    parent = None if made is None else source.parents.get(made)
    trainers = set()
    if isinstance(parent, ast.Assign):
        trainers = {source.dotted(target) for target in parent.targets}
    starts = source.calls_of(begins)
    starts = [call for call in starts if source.called(call).rpartition(".")[0] in trainers]
    if made is None or not starts:
        return []

    given = option_of(starts[0], option)
    if given is None:
        newest = _with_argument(source, starts[0], f"{option}=spot.newest()")
    else:
        newest = _replaced(source, given, "spot.newest()")

    callbacks, callback = option_of(made, "callbacks"), "spot := SpotCallback()"
    if callbacks is None:
        called_back = _with_argument(source, made, f"callbacks=[{callback}]")
    else:
        code = source.code(callbacks)
        together = f"[{callback}, *({code} or [])]"
        if isinstance(callbacks, ast.List):
            comma = ", " if callbacks.elts else ""
            together = f"[{callback}{comma}{code[1:]}"
        called_back = _replaced(source, callbacks, together)

    imported = _import(source, f"from spotctl.integrations.{module} import SpotCallback")
    return [imported, *called_back, *newest]


def _import(source: ScriptSource, line: str) -> Change:
    """A line after the last import at the top of the script."""
    body = source.tree.body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    if imports:
        last = imports[-1]
        return Change((last.end_lineno or last.lineno) + 1, INSERT, line)

    first = body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    above = (first.end_lineno or 1) + 1 if is_docstring else first.lineno
    return Change(above, INSERT, line)


def _with_argument(source: ScriptSource, call: ast.Call, argument: str) -> list[Change]:
    """A call with one more argument, written after its last."""
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    ends = [(part.end_lineno or 0, part.end_col_offset or 0) for part in parts]
    last_line, close = call.end_lineno or call.lineno, (call.end_col_offset or 1) - 1
    if not ends:
        return [_changed_line(source, last_line, close, close, argument)]

    line, column = max(ends)
    end = close if line == last_line else None
    rest = source.lines[line - 1].encode()[column:end]
    if b")" in rest:
        # A last argument in parentheses of its own ends behind them.
        column += rest.rindex(b")") + 1
    return [_changed_line(source, line, column, column, f", {argument}")]


def _replaced(source: ScriptSource, node: ast.expr, text: str) -> list[Change]:
    """The lines of an expression with another in its place, which is on one line."""
    first, last = node.lineno, node.end_lineno or node.lineno
    begin, end = node.col_offset, node.end_col_offset or 0
    if first == last:
        return [_changed_line(source, first, begin, end, text)]

    before = source.lines[first - 1].encode()[:begin].decode()
    after = source.lines[last - 1].encode()[end:].decode()
    joined = " ".join(part.strip() for part in text.splitlines())
    changes = [Change(first, REPLACE, f"{before}{joined}{after}")]
    changes += [Change(line, REPLACE, "") for line in range(first + 1, last + 1)]
    return changes


def _changed_line(source: ScriptSource, line: int, begin: int, end: int, text: str) -> Change:
    # The tree counts bytes.
    old = source.lines[line - 1].encode()
    return Change(line, REPLACE, (old[:begin] + text.encode() + old[end:]).decode())
