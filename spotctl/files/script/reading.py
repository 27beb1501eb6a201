"""From the text of a script to what its job needs."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spotctl.files.script.changes import FRAMEWORK_CHANGES, Change, checked, redirecting_changes, resuming_changes
from spotctl.files.script.loop import TrainingLoop, loop_of
from spotctl.files.script.places import (
    OWN_TOOLS,
    Head,
    Places,
    SaveCall,
    ScriptPlace,
    loads_of,
    of_machine,
    saves_of,
)
from spotctl.files.script.source import (
    KERAS,
    Argument,
    Libraries,
    ScriptSource,
    arguments_of,
    libraries_of,
    read_source,
)

RESUMING = re.compile(r"resume|checkpoint|ckpt|restore|restart|load(_|$)|init_from")
"""Names of arguments from which a script resumes."""
_FITS = re.compile(r"\.fit$|(?i:trainer)\w*\.train$")


@dataclass(frozen=True)
class TrainingScript:
    """A script as its job sees it. Paths are relative to `folder`, where the job runs it."""

    source: ScriptSource
    folder: Path
    libraries: Libraries
    arguments: tuple[Argument, ...]
    saves: tuple[SaveCall, ...]
    loads: tuple[SaveCall, ...]
    loop: TrainingLoop | None
    changes: tuple[Change, ...]
    uses_tools: bool
    """Whether the script resumes with a tool of spotctl."""

    @cached_property
    def path(self) -> Path:
        """The script, as a command in its folder names it."""
        return self.source.path.resolve().relative_to(self.folder)

    @property
    def resumes(self) -> bool:
        """Whether the script, as it is, goes on where its last save ended, with the arguments that a job gives it."""
        return not self.changes and self.saves_in_time and self.can_load

    @property
    def can_load(self) -> bool:
        return self.uses_tools or bool(self.loads)

    @property
    def saves_in_time(self) -> bool:
        """Whether it saves while it trains, and not only at its end."""
        return self.uses_tools or bool(self.repeated_saves)

    @property
    def repeated_saves(self) -> tuple[SaveCall, ...]:
        return tuple(save for save in self.saves if not _is_after(self.source, save.call, self.loop))

    @property
    def final_saves(self) -> tuple[SaveCall, ...]:
        return tuple(save for save in self.saves if _is_after(self.source, save.call, self.loop))

    def conditions(self, save: SaveCall) -> list[ast.expr]:
        """The conditions under which a save happens, other than that the script is run."""
        tests = [outer.test for outer in self.source.above(save.call) if isinstance(outer, ast.If)]
        return [test for test in tests if "__name__" not in self.source.code(test)]

    @property
    def by_name(self) -> dict[str, Argument]:
        return {argument.name: argument for argument in self.arguments}

    def checks(self, place: ScriptPlace) -> bool:
        """Whether the script looks if a file is there before it loads the file."""
        tests = re.findall(
            r"(?:exists|isfile|is_file|isdir|is_dir)\(\s*([\w.]*)|([\w.]+)\.(?:exists|is_file|is_dir)\(",
            self.source.text,
        )
        return any(place.name in (part.rpartition(".")[2] or part for part in parts) for parts in tests)


def read_script(path: Path, folder: Path) -> TrainingScript:
    """The script, read but not run."""
    source = read_source(path)
    arguments = arguments_of(source)
    libraries = libraries_of(source, folder)
    places = Places(source, {argument.name: argument for argument in arguments})
    loop = loop_of(source)
    saves = tuple(saves_of(source, places, libraries.framework))
    reached = (load for load in loads_of(source, places) if not _is_switched_off(load, source, places))
    loads = tuple(load for load in reached if _resumes(load, saves, source, loop))
    imported = [name.rpartition(".")[2] for name in source.aliases.values() if name.startswith("spotctl.")]
    uses_tools = not OWN_TOOLS.isdisjoint(imported)
    proposed = () if uses_tools else _changes(source, libraries.framework, loop, saves, loads)
    changes = tuple(checked(source, list(proposed)))
    return TrainingScript(source, folder, libraries, arguments, saves, loads, loop, changes, uses_tools)


def _is_switched_off(load: SaveCall, source: ScriptSource, places: Places) -> bool:
    """Whether a load is for another value of a constant: `if init_from == "resume"` after `init_from = "scratch"`."""
    below: ast.AST = load.call
    for outer in source.above(load.call):
        match outer:
            case ast.If(
                test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=wanted)]), body=body
            ):
                place = places.of(left)
                if below in body and place.head is Head.LITERAL and place.name != wanted:
                    return True
        below = outer
    return False


def _resumes(load: SaveCall, saves: Sequence[SaveCall], source: ScriptSource, loop: TrainingLoop | None) -> bool:
    """Whether a load is of what the script itself saved, and comes before it trains."""
    if _is_after(source, load.call, loop):
        return False
    place = load.place
    if place.head is Head.UNKNOWN:
        return False
    if of_machine(place) or (place.head is Head.ARGUMENT and RESUMING.search(place.name)):
        return True
    return any((place.head, place.name) == (save.place.head, save.place.name) for save in saves)


def _is_after(source: ScriptSource, call: ast.Call, loop: TrainingLoop | None) -> bool:
    """Whether a call comes after the loop, in its function or in one that is called only after it; or after a fit."""
    if loop is None:
        # `model.train()` only sets a mode.
        fits = (other for other in source.calls if _FITS.search(source.called(other)))
        return any(fit.lineno < call.lineno for fit in fits)
    if call in ast.walk(loop.node):
        return False
    scope = source.scope(call)
    if scope is loop.scope:
        return call.lineno > (loop.node.end_lineno or loop.node.lineno)
    if isinstance(scope, ast.Module):
        return call.lineno > loop.node.lineno
    callers = [
        other for other in source.calls if source.called(other).rpartition(".")[2] == scope.name and other is not call
    ]
    outside = [other for other in callers if source.scope(other) is not scope]
    return bool(outside) and all(_is_after(source, other, loop) for other in outside)


def _changes(
    source: ScriptSource,
    framework: str,
    loop: TrainingLoop | None,
    saves: Sequence[SaveCall],
    loads: Sequence[SaveCall],
) -> Iterator[Change]:
    repeated = [save for save in saves if not _is_after(source, save.call, loop)]
    # An argument, or a change of one line, sends these to where the next machine looks.
    places = [save.place for save in repeated]
    is_kept = all(place.head in (Head.ARGUMENT, Head.LITERAL) or of_machine(place) for place in places)
    if change := FRAMEWORK_CHANGES.get(framework):
        if not (framework == KERAS and any(of_machine(save.place) for save in saves)):
            yield from change(source, framework)
    elif repeated and loads and is_kept:
        yield from redirecting_changes(source, repeated)
    elif loop is not None and loop.states:
        yield from resuming_changes(source, loop)
