"""Sees the work of a training script that a trial runs: its loops, weights, saves and loads.

A trial starts Python with a copy of this file as `sitecustomize`, so it knows no other module of
spotctl and runs in whatever Python the user has. The script never feels it: an error in here must
not reach the script, and no code of the script's own runs when a value of it is read.

It appends lines of JSON to a file of its process. `step` comes before a step of the first
optimizer, with a few of its weights. `save` comes before something is written below the trial's
folder, `done` after that, and `cut` where the script is killed in the middle of it. `state` has
some of the numbers that are written after a file was opened, and `load` says what is read back.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import json
import os
import signal
import sys
import threading
import time
from typing import Any

_FOLDER = os.environ.get("SPOTCTL_TRIAL_SEEN", "")
_ROOTS = [root for root in os.environ.get("SPOTCTL_TRIAL_ROOTS", "").split(os.pathsep) if root]
_LIBRARIES = (
    "/transformers/",
    "/lightning/",
    "/pytorch_lightning/",
    "/keras/",
    "/torchtitan/",
    "/ignite/",
    "/torchnet/",
)
"""Libraries whose loops are as good as the script's own."""
_STEPS = ("global_step", "iteration")
"""Names under which their trainers count steps."""

_TO_PATH, _TO_FILE, _OPENS = "to a path", "to an open file", "opens its file"
_SAVING = {
    "torch.serialization": (("save", _TO_PATH, "f"),),
    "safetensors.torch": (("save_file", _TO_PATH, "filename"),),
    "pickle": (("dump", _TO_FILE, "file"), ("dumps", _OPENS, "")),
    "numpy": (("save", _OPENS, ""), ("savez", _OPENS, ""), ("savez_compressed", _OPENS, "")),
    "joblib": (("dump", _OPENS, ""),),
}
"""The functions of a module that save, how, and the name of their second argument: where to.

Of a function that opens its file, the audit of Python sees the rest.
"""

NO_SAVES = (
    ".log",
    ".txt",
    ".csv",
    ".tsv",
    ".jsonl",
    ".out",
    ".err",
    ".pyc",
    ".png",
    ".svg",
    ".lock",
    ".md",
)
_MAX_LINES = 50_000
_WEIGHTS = 8
_MAX_ARRAYS, _MAX_NESTED = 24, 6
"""The arrays of fractions that are looked at in what is saved, and how deep they may be in it."""

_DEPTH, END, AWAITED = 60, " ends", " awaited on line "
_loops: dict[str, list[Any]] = {}
_conditions: dict[str, list[Any]] = {}
_MAX_RESTS, REST_SECONDS = 20, 0.3
"""After a save the script rests, so that a copy of it can be made; slow scripts and fast ones are
killed alike."""

_CUT_SECONDS, _IMPORT_SECONDS = 0.002, 0.5
_seen: dict[str, Any] = {"lines": 0, "steps": 0, "optimizer": 0, "saves": 0, "rests": 0, "all": 0}
_seen["import"] = 0.0
_seen["position"] = []
_local = threading.local()


def _write(kind: str, **values: Any) -> None:
    _seen["lines"] += 1
    if _seen["lines"] > _MAX_LINES and kind == "step" and _seen["steps"] % 16:
        return

    spent = {"at": time.monotonic(), "spent": time.process_time()}
    text = json.dumps({"kind": kind, **spent, **values}) + "\n"
    handle = os.open(
        os.path.join(_FOLDER, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )

    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _path_of(node: ast.AST) -> tuple[str, ...]:
    """The names and keys that lead to a value: `("self", ".step")`; empty for any other
    expression."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append("." + node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            parts.append("[" + node.slice.value)
        else:
            return ()
        node = node.value

    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def _names_in(test: ast.AST) -> list[tuple[tuple[str, ...], ast.AST]]:
    """The values that a condition compares, such as `step` in `step >= limit`, or `step + begun`,
    which has the name of its first part.
    """
    compared: list[tuple[tuple[str, ...], ast.AST]] = []
    for compare in ast.walk(test):
        if isinstance(compare, ast.Compare):
            for side in (compare.left, *compare.comparators):
                path = _path_of(side.left if isinstance(side, ast.BinOp) else side)
                if path:
                    compared.append((path, side))
    return compared


def _described_loop(loop: Any) -> list[tuple[str, tuple[str, ...], ast.AST]]:
    """Kinds, paths and values of what says where a loop stands: its target, what ends it, and what
    it counts.
    """
    parts: list[tuple[str, tuple[str, ...], ast.AST]] = []
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        targets = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
        parts += [("for", (target.id,), target) for target in targets]
    else:
        parts += [("bound", *compared) for compared in _names_in(loop.test)]

    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(
            isinstance(each, (ast.Break, ast.Return)) for each in node.body
        ):
            parts += [("bound", *compared) for compared in _names_in(node.test)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
            parts.append(("count", _path_of(node.target), node.target))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            target = _path_of(node.targets[0])
            if target and target == _path_of(node.value.left):
                parts.append(("count", target, node.targets[0]))

    # What ends a loop is usually counted in it as well.
    known = [part for part in parts if part[1]]
    bounds = [part for part in known if part[0] != "count"]
    return bounds + [part for part in known if part[0] == "count"]


def _end_of(loop: Any) -> Any:
    """The expression at which a loop over a range of numbers ends; None for any other loop."""
    call: Any = getattr(loop, "iter", None)
    is_range = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "range"
    is_plain = is_range and isinstance(loop.target, ast.Name) and 0 < len(call.args) < 3
    return call.args[-1] if is_plain else None


def _computed(frame: Any, node: Any) -> int | None:
    """The whole number that a sum or a difference of known ones is."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _computed(frame, node.left), _computed(frame, node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    path = _path_of(node)
    return _value(frame, path) if path else None


def _loops_of(file: str) -> list[Any]:
    """The loops of a file: first and last line, what says where each stands, and where it ends.

    On the way, its conditions that await a number by a sum, such as `epoch == begun + epochs - 1`.
    """
    if file not in _loops:
        _loops[file], _conditions[file] = [], []
        try:
            with open(file, "rb") as text:
                tree = ast.parse(text.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []
        for node in ast.walk(tree):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                lines, end = (node.lineno, node.body[-1].end_lineno), _end_of(node)
                _loops[file].append((*lines, _described_loop(node), end))
            elif isinstance(node, ast.Compare) and type(node.ops[0]) is ast.Eq:
                name, total = node.left, node.comparators[0]
                if isinstance(name, ast.Name) and isinstance(total, ast.BinOp):
                    _conditions[file].append((f"{name.id}{AWAITED}{node.lineno}", total))
    return _loops[file]


def _value(frame: Any, path: tuple[str, ...]) -> int | None:
    """The whole number at the end of a path, without running any code of the script's."""
    value = frame.f_locals.get(path[0], frame.f_globals.get(path[0]))
    for part in path[1:]:
        if part[0] == "[":
            value = value.get(part[1:]) if type(value) is dict else None
        else:
            value = getattr(value, "__dict__", {}).get(part[1:])
    return value if type(value) is int else None


def _frames() -> list[Any]:
    """The main thread's frames in files of the user and of trainers, from the outermost, with their
    names.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames: list[Any] = []
    while frame is not None and len(frames) < _DEPTH:
        file = os.path.abspath(frame.f_code.co_filename)
        name = os.path.basename(file)
        is_ours = name == "sitecustomize.py"
        roots = [root for root in _ROOTS if file.startswith(root + os.sep)]

        if roots and not is_ours:
            frames.append((frame, file, file[len(roots[0]) + 1 :]))
        elif not is_ours and any(library in file for library in _LIBRARIES):
            frames.append((frame, file, name))
        frame = frame.f_back

    return frames[::-1]


def _position() -> list[Any]:
    """Where the loops around the main thread's present line stand, from the outermost: key, kind
    and number.
    """
    numbers_by_key: dict[str, tuple[str, int]] = {}
    for frame, file, name in _frames():
        where = name + ":" + frame.f_code.co_name + ":"
        inside = [loop for loop in _loops_of(file) if loop[0] <= frame.f_lineno <= loop[1]]
        for first, _, parts, end in sorted(inside, key=lambda loop: loop[:2]):
            numbers = [(kind, path, _computed(frame, node)) for kind, path, node in parts]
            numbers = [each for each in numbers if each[2] is not None]
            for kind, path, number in numbers:
                numbers_by_key.setdefault(where + "".join(path), (kind, number or 0))
            until = _computed(frame, end)
            if until is not None:
                numbers_by_key.setdefault(where + parts[0][1][0] + END, ("end", until))
            if all(kind == "count" for kind, _, _ in numbers):
                numbers_by_key.setdefault(where + str(first), ("open", 0))
        sums = _conditions.get(file, ()) if inside else ()
        awaited = [(where + name, _computed(frame, total)) for name, total in sums]
        numbers_by_key.update((key, ("end", total)) for key, total in awaited if total is not None)
        if not file.startswith(tuple(_ROOTS)):
            # The steps that a trainer of a library counts over all of its loops.
            me = frame.f_locals.get("self")
            own = getattr(me, "__dict__", {})
            holders = (me, own.get("state"), own.get("trainer"))
            counted = [(key, getattr(each, key, None)) for key in _STEPS for each in holders]
            for key, steps in counted:
                if type(steps) is int:
                    numbers_by_key.setdefault(key, ("trainer", steps))
                    break

    return [[key, kind, number] for key, (kind, number) in numbers_by_key.items()]


def _arrays_in(value: Any, depth: int = 0) -> Any:
    """The arrays and lists of fractions in what is saved, in turn."""
    is_array = hasattr(value, "dtype") and hasattr(value, "reshape")
    if depth > _MAX_NESTED:
        return
    if is_array and "float" in str(value.dtype):
        yield value.reshape(-1)
    elif isinstance(value, (list, tuple)) and value and all(type(each) is float for each in value):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _arrays_in(each, depth + 1)
    elif not is_array and hasattr(value, "__dict__") and not isinstance(value, type):
        yield from _arrays_in(vars(value), depth + 1)


def _numbers_in(value: Any) -> list[float]:
    """A few of the fractions in what is saved."""
    numbers = []
    for array in itertools.islice(_arrays_in(value), _MAX_ARRAYS):
        if len(array) > 1 or type(array) is list:
            numbers += [
                float(number) for number in array[:: max(1, len(array) // _WEIGHTS)][:_WEIGHTS]
            ]
    return numbers


def _rest() -> None:
    """Waits once after a save, before the next step or the next save."""
    if _seen["saves"] and _seen["rests"] < _MAX_RESTS:
        _seen["rests"] += 1
        time.sleep(REST_SECONDS)
    _seen["saves"] = 0


def _begin_save(path: str) -> bool:
    """Notes a save before it begins; returns whether the script is killed in the middle of it."""
    position = _position()
    # A script without steps of an optimizer rests before its next save.
    if position and not _seen["steps"] and _seen["position"] != position:
        _rest()
    _seen["position"] = position
    aside = threading.current_thread() is not threading.main_thread()
    # A child process that does not train saves what its parent trains.
    children = sys.modules.get("multiprocessing.process")
    is_child = children is not None and children.parent_process() is not None
    aside |= is_child and not _seen["steps"]
    numbers = _seen.pop("numbers", ())
    _write("save", path=os.path.abspath(path), position=position, weights=numbers, aside=aside)
    if not position:
        return False

    _seen["saves"] += 1
    if os.environ.get("SPOTCTL_TRIAL_STEPS") == "1" and not _seen["steps"]:
        # Some scripts save again what they have just loaded.
        return False

    _seen["all"] += 1
    return bool(_seen["all"] == int(os.environ.get("SPOTCTL_TRIAL_CUT", "0")))


def _end_all() -> None:
    os.killpg(0, signal.SIGKILL)


def _before_step(optimizer: Any, *_: Any) -> None:
    try:
        if _seen["optimizer"] in (0, id(optimizer)):
            _seen["optimizer"] = id(optimizer)
            _seen["steps"] += 1
            _rest()
            position = _position()

            # A few of the weights that the optimizer is about to change.
            tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
            tensors = [tensor for tensor in tensors if tensor.is_floating_point()]
            tensors = [tensor for tensor in tensors if tensor.numel()]
            numbers = []
            for tensor in dict.fromkeys((*tensors[:2], *tensors[-2:])):
                flat = tensor.detach()
                flat = flat.to_local() if hasattr(flat, "to_local") else flat
                flat = flat.reshape(-1)
                every = max(1, flat.numel() // _WEIGHTS)
                few = flat[::every][:_WEIGHTS].float().tolist()
                numbers += [float(number) for number in few]
            _write("step", position=position, weights=numbers)
    except Exception:
        return


def _is_save(path: str) -> bool:
    path = os.path.abspath(path)
    below: bool = any(path.startswith(root + os.sep) for root in _ROOTS)
    return (
        below
        and not path.startswith(_FOLDER)
        and not path.endswith(NO_SAVES)
        and "tfevents" not in path
    )


def _is_outside(path: str) -> bool:
    """Whether a file that a loop writes is out of the trial's reach."""
    path = os.path.abspath(path)
    is_temporary = path.startswith(("/dev/", "/proc/", "/sys/", os.path.dirname(_FOLDER) + os.sep))
    is_cache = "/." in path or "cache" in path.lower()
    return not (is_temporary or is_cache or path.endswith(NO_SAVES) or "tfevents" in path)


def _audit(event: str, arguments: Any) -> None:
    if event not in ("open", "os.rename") or getattr(_local, "busy", False):
        return

    _local.busy = True
    try:
        path = os.fspath(arguments[0]) if isinstance(arguments[0], (str, os.PathLike)) else ""
        mode = arguments[1] if isinstance(arguments[1], str) else ""
        if event == "os.rename":
            target = os.fspath(arguments[1])
            if isinstance(target, str) and _is_save(target):
                # Lightning writes the file elsewhere, where it is no save.
                if isinstance(path, str) and not _is_save(path) and _begin_save(target):
                    _write("cut")
                    _end_all()
                _write("done", path=os.path.abspath(target))
        elif path and set(mode) & set("wx+") and _is_save(path):
            if _begin_save(path):
                _write("cut")
                threading.Timer(_CUT_SECONDS, _end_all).start()
        elif path and set(mode) & set("wx") and _is_outside(path) and _position():
            _write("outside", path=os.path.abspath(path))
        elif path and "r" in mode and _is_save(path):
            _write("load", path=os.path.abspath(path))
    except Exception:
        return
    finally:
        _local.busy = False


def _quietly(noting: Any, *arguments: Any) -> Any:
    """Calls a function of this file, and returns None if it fails. Files that it opens are not the
    script's.
    """
    was_busy = getattr(_local, "busy", False)
    _local.busy = True
    try:
        return noting(*arguments)
    except Exception:
        return None
    finally:
        _local.busy = was_busy


def _before_saving(kind: str, target: Any, saved: Any) -> Any:
    """Notes what is about to be saved.

    Returns whether the save is cut, and None if its end is not seen here.
    """
    if kind == _OPENS:
        # Kept for the mark of the save, which comes when the file is opened.
        numbers = _quietly(_numbers_in, saved)
        if numbers:
            _seen["numbers"] = numbers
        return None

    # PyTorch takes paths and open files.
    is_path = kind == _TO_PATH and isinstance(target, (str, os.PathLike))
    place = target if is_path else getattr(target, "name", "")
    path = os.fspath(place) if isinstance(place, (str, os.PathLike)) else ""
    if not isinstance(path, str) or not path or not _is_save(path):
        # PyTorch opens it without a word to Python.
        if is_path and path and _is_outside(path) and _position():
            _write("outside", path=os.path.abspath(path))
        return None

    numbers = _quietly(_numbers_in, saved)
    if not is_path:
        # The save has begun when the file was opened.
        _write("state", path=os.path.abspath(path), weights=numbers or ())
        return None

    if numbers:
        _seen["numbers"] = numbers
    return _begin_save(path)


def _watched(save: Any, kind: str, name: str) -> Any:
    """A function that saves as before, and tells of it."""

    @functools.wraps(save)
    def saving(*args: Any, **options: Any) -> Any:
        target: Any = args[1] if len(args) > 1 else options.get(name)
        given = args[0] if args else options.get("obj")
        saved = [args, options] if kind == _OPENS else given
        is_cut = _quietly(_before_saving, kind, target, saved)
        result = save(*args, **options)

        if is_cut:
            # As a machine leaves it that ends in the middle.
            _write("cut")
            os.truncate(target, os.path.getsize(target) // 2)
            _end_all()

        if is_cut is not None:
            _write("done", path=os.path.abspath(target))
        return result

    return saving


def _watch_databases(module: Any) -> None:
    """Connections of sqlite3 save when they commit; what is in a database when it is opened can be
    read back.
    """
    connect = module.connect

    class Connection(module.Connection):  # type: ignore[misc]
        saves_to = ""

        def commit(self) -> None:
            known = self.in_transaction and self.saves_to and _is_save(self.saves_to)
            if known and _quietly(_begin_save, self.saves_to):
                _write("cut")
                _end_all()
            super().commit()
            if known:
                _write("done", path=self.saves_to)

        def __exit__(self, kind: Any, *rest: Any) -> Any:
            if kind is None:
                self.commit()
            return super().__exit__(kind, *rest)

    def connecting(database: Any, *args: Any, **options: Any) -> Any:
        path = ""
        if isinstance(database, (str, os.PathLike)):
            path = os.path.abspath(os.fspath(database))
        if path and _is_save(path) and os.path.isfile(path) and os.path.getsize(path):
            _write("load", path=path)
        connection = connect(database, *args, **{"factory": Connection, **options})
        if isinstance(connection, Connection):
            connection.saves_to = path

        return connection

    module.connect = connecting


def _note_import() -> None:
    """Tells now and then that modules are being imported, until the script works."""
    now = time.monotonic()
    if not _seen["steps"] and not _seen["position"] and now - _seen["import"] > _IMPORT_SECONDS:
        _seen["import"] = now
        _write("import")


class _Finder:
    """Lets the modules that are watched be found as usual, and tells when each has been
    imported."""

    names = frozenset(("torch.optim.optimizer", "sqlite3", *_SAVING))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        _note_import()
        if name not in self.names:
            return None

        self.names = self.names - {name}
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec

        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            try:
                if name == "torch.optim.optimizer":
                    module.register_optimizer_step_pre_hook(_before_step)
                elif name == "sqlite3":
                    _watch_databases(module)
                for function, kind, argument in _SAVING.get(name, ()):
                    setattr(module, function, _watched(getattr(module, function), kind, argument))
            except Exception:
                return

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _chain() -> None:
    """Runs the `sitecustomize` that this one stands before."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        file = os.path.join(folder, "sitecustomize.py")
        if os.path.abspath(folder) != here and os.path.isfile(file):
            spec = importlib.util.spec_from_file_location("_next_sitecustomize", file)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


if __name__ == "sitecustomize" and _FOLDER:
    _chain()
    _write("start")
    sys.meta_path.insert(0, _Finder())
    sys.addaudithook(_audit)
