"""Sees the work of a training script that a trial runs: where its loops stand, its weights, its saves and loads.

A trial starts Python with a copy of this file as `sitecustomize`, so it knows no other module of spotctl, runs in
whatever Python the user has, and never lets an error of its own reach the script. It appends lines of JSON to a file of
its process: `step` before a step of the first optimizer (with a few of its weights), `save` before something is written
below the trial's folder, `done` after that, `cut` where the script is killed in the middle of it, `state` with some of
the numbers that are written after a file was opened, and `load` for what is read back.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from typing import Any

_FOLDER = os.environ.get("SPOTCTL_TRIAL_SEEN", "")
_ROOTS = [root for root in os.environ.get("SPOTCTL_TRIAL_ROOTS", "").split(os.pathsep) if root]
_LIBRARIES = ("/transformers/", "/lightning/", "/pytorch_lightning/", "/keras/", "/torchtitan/")
"""Libraries whose loops are as good as the script's own."""

_SAVING = {"numpy": ("save", "savez", "savez_compressed"), "joblib": ("dump",)}
"""Functions that save what they are given, and open the file themselves."""

NO_SAVES = (".log", ".txt", ".csv", ".tsv", ".jsonl", ".out", ".err", ".pyc", ".png", ".svg", ".lock", ".md")
_MAX_LINES = 50_000
_WEIGHTS = 8
_MAX_ARRAYS, _MAX_NESTED = 24, 6
"""The arrays of fractions that are looked at in what is saved, and how deep they may be in it."""

_DEPTH = 60
_loops: dict[str, list[Any]] = {}
_MAX_RESTS, _REST_SECONDS = 20, 0.3
"""After a save the script rests, so that a copy of it can be made; slow scripts and fast ones are killed alike."""

_CUT_SECONDS = 0.002
_seen: dict[str, Any] = {"lines": 0, "steps": 0, "optimizer": 0, "saves": 0, "rests": 0, "all": 0}
_seen["position"] = []
_local = threading.local()


def _write(kind: str, **values: Any) -> None:
    _seen["lines"] += 1
    if _seen["lines"] > _MAX_LINES and kind == "step" and _seen["steps"] % 16:
        return
    text = json.dumps({"kind": kind, "at": time.monotonic(), **values}) + "\n"
    handle = os.open(os.path.join(_FOLDER, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _path_of(node: ast.AST) -> tuple[str, ...]:
    """The names and keys that lead to a value: `("self", ".step")`; empty for any other expression."""
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


def _names_in(test: ast.AST) -> list[tuple[str, ...]]:
    """The values that a condition compares, such as `step` in `step >= limit`."""
    compared: list[tuple[str, ...]] = []
    for compare in ast.walk(test):
        if isinstance(compare, ast.Compare):
            for side in (compare.left, *compare.comparators):
                path = _path_of(side)
                if path:
                    compared.append(path)
    return compared


def _described_loop(loop: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Kinds and paths of what says where a loop stands: its target, what ends it, and what it counts."""
    parts: list[tuple[str, tuple[str, ...]]] = []
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        targets = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
        parts += [("for", (target.id,)) for target in targets]
    else:
        parts += [("bound", path) for path in _names_in(loop.test)]
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(isinstance(each, (ast.Break, ast.Return)) for each in node.body):
            parts += [("bound", path) for path in _names_in(node.test)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
            parts.append(("count", _path_of(node.target)))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            target = _path_of(node.targets[0])
            if target and target == _path_of(node.value.left):
                parts.append(("count", target))
    # What ends a loop is usually counted in it as well.
    known = [(kind, path) for kind, path in dict.fromkeys(parts) if path]
    return sorted(known, key=lambda part: part[0] == "count")


def _loops_of(file: str) -> list[Any]:
    """The loops of a file: first and last line, and what says where each stands."""
    if file not in _loops:
        _loops[file] = []
        try:
            with open(file, "rb") as text:
                tree = ast.parse(text.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []
        for node in ast.walk(tree):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                _loops[file].append((node.lineno, node.body[-1].end_lineno, _described_loop(node)))
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


def _name_of(file: str) -> str:
    for root in _ROOTS:
        if file.startswith(root + os.sep):
            return file[len(root) + 1 :]
    return os.path.basename(file) if any(library in file for library in _LIBRARIES) else ""


def _frames() -> list[Any]:
    """The main thread's frames in files of the user and of trainers, from the outermost, with their names."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames: list[Any] = []
    while frame is not None and len(frames) < _DEPTH:
        file = os.path.abspath(frame.f_code.co_filename)
        name = "" if os.path.basename(file) == "sitecustomize.py" else _name_of(file)
        if name:
            frames.append((frame, file, name))
        frame = frame.f_back
    return frames[::-1]


def _trainer_steps(frame: Any) -> int | None:
    """The steps that a trainer of a library counts over all of its loops."""
    me = frame.f_locals.get("self")
    for holder in (me, getattr(me, "__dict__", {}).get("state"), getattr(me, "__dict__", {}).get("trainer")):
        steps = getattr(holder, "global_step", None)
        if type(steps) is int:
            return steps
    return None


def _position() -> list[Any]:
    """Where the loops around the main thread's present line stand, from the outermost: key, kind and number."""
    numbers_by_key: dict[str, tuple[str, int]] = {}
    for frame, file, name in _frames():
        where = name + ":" + frame.f_code.co_name + ":"
        inside = [loop for loop in _loops_of(file) if loop[0] <= frame.f_lineno <= loop[1]]
        for first, _, parts in sorted(inside, key=lambda loop: loop[0]):
            numbers = [(kind, path, _value(frame, path)) for kind, path in parts]
            numbers = [each for each in numbers if each[2] is not None]
            for kind, path, number in numbers:
                numbers_by_key.setdefault(where + "".join(path), (kind, number or 0))
            if all(kind == "count" for kind, _, _ in numbers):
                numbers_by_key.setdefault(where + str(first), ("open", 0))
        if not file.startswith(tuple(_ROOTS)):
            steps = _trainer_steps(frame)
            if steps is not None:
                numbers_by_key.setdefault("global_step", ("trainer", steps))
    return [[key, kind, number] for key, (kind, number) in numbers_by_key.items()]


def _some_weights(optimizer: Any) -> list[float]:
    """A few of the weights that an optimizer is about to change."""
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    tensors = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    numbers = []
    for tensor in dict.fromkeys((*tensors[:2], *tensors[-2:])):
        flat = tensor.detach()
        flat = flat.to_local() if hasattr(flat, "to_local") else flat
        flat = flat.reshape(-1)
        every = max(1, flat.numel() // _WEIGHTS)
        numbers += [float(number) for number in flat[::every][:_WEIGHTS].float().tolist()]
    return numbers


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
    import itertools

    numbers = []
    for array in itertools.islice(_arrays_in(value), _MAX_ARRAYS):
        if len(array) > 1 or type(array) is list:
            numbers += [float(number) for number in array[:: max(1, len(array) // _WEIGHTS)][:_WEIGHTS]]
    return numbers


def _rest() -> None:
    """Waits once after a save, before the next step or the next save."""
    if _seen["saves"] and _seen["rests"] < _MAX_RESTS:
        _seen["rests"] += 1
        time.sleep(_REST_SECONDS)
    _seen["saves"] = 0


def _begin_save(path: str) -> bool:
    """Notes a save before it begins; returns whether the script is killed in the middle of it."""
    position = _position()
    # A script without steps of an optimizer rests before its next save.
    if position and not _seen["steps"] and _seen["position"] != position:
        _rest()
    _seen["position"] = position
    _write("save", path=os.path.abspath(path), position=position, weights=_seen.pop("numbers", ()))
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
            _write("step", position=_position(), weights=_some_weights(optimizer))
    except Exception:
        return


def _is_save(path: str) -> bool:
    path = os.path.abspath(path)
    below: bool = any(path.startswith(root + os.sep) for root in _ROOTS)
    return below and not path.startswith(_FOLDER) and not path.endswith(NO_SAVES) and "tfevents" not in path


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
        elif path and "r" in mode and _is_save(path):
            _write("load", path=os.path.abspath(path))
    except Exception:
        return
    finally:
        _local.busy = False


def _quietly(noting: Any, *arguments: Any) -> Any:
    """Calls a function of this file, and returns None if it fails. Files that it opens are not the script's."""
    was_busy = getattr(_local, "busy", False)
    _local.busy = True
    try:
        return noting(*arguments)
    except Exception:
        return None
    finally:
        _local.busy = was_busy


def _note_numbers(value: Any) -> None:
    """Keeps some of the numbers of what is about to be saved, for the mark of the save."""
    numbers = _numbers_in(value)
    if numbers:
        _seen["numbers"] = numbers


def _note_state(value: Any, path: Any) -> None:
    """Says what is written into a file whose save has begun when it was opened."""
    if isinstance(path, str) and _is_save(path):
        _write("state", path=os.path.abspath(path), weights=_numbers_in(value))


def _with_numbers(save: Any) -> Any:
    """A function that saves what it is given, and opens the file itself."""
    import functools

    @functools.wraps(save)
    def saving(*args: Any, **options: Any) -> Any:
        _quietly(_note_numbers, [args, options])
        return save(*args, **options)

    return saving


def _into_file(dump: Any) -> Any:
    """A function that writes what it is given into an open file."""
    import functools

    @functools.wraps(dump)
    def dumping(*args: Any, **options: Any) -> Any:
        file = args[1] if len(args) > 1 else options.get("file")
        _quietly(_note_state, args[0] if args else options.get("obj"), getattr(file, "name", ""))
        return dump(*args, **options)

    return dumping


def _watched(save: Any, position_of_path: int, name: str) -> Any:
    """A function that saves to a path, and says so before and after."""
    import functools

    @functools.wraps(save)
    def saving(*args: Any, **options: Any) -> Any:
        path: Any = args[position_of_path] if len(args) > position_of_path else options.get(name)
        known = isinstance(path, (str, os.PathLike)) and _is_save(os.fspath(path))
        is_cut = False
        if known:
            _quietly(_note_numbers, args[:1])
            is_cut = _quietly(_begin_save, os.fspath(path))
            # A save that could not be noted has no end, either.
            known = is_cut is not None
        result = save(*args, **options)
        if is_cut:
            # As a machine leaves it that ends in the middle.
            _write("cut")
            os.truncate(path, os.path.getsize(path) // 2)
            _end_all()
        if known:
            _write("done", path=os.path.abspath(path))
        return result

    return saving


def _watch_databases(module: Any) -> None:
    """Connections of sqlite3 save when they commit; what is in a database when it is opened can be read back."""
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
        path = os.path.abspath(os.fspath(database)) if isinstance(database, (str, os.PathLike)) else ""
        if path and _is_save(path) and os.path.isfile(path) and os.path.getsize(path):
            _write("load", path=path)
        connection = connect(database, *args, **{"factory": Connection, **options})
        if isinstance(connection, Connection):
            connection.saves_to = path
        return connection

    module.connect = connecting


def _after_import(name: str, module: Any) -> None:
    if name == "torch.optim.optimizer":
        module.register_optimizer_step_pre_hook(_before_step)
    elif name == "torch.serialization":
        module.save = _watched(module.save, 1, "f")
    elif name == "safetensors.torch":
        module.save_file = _watched(module.save_file, 1, "filename")
    elif name == "sqlite3":
        _watch_databases(module)
    elif name == "pickle":
        module.dump, module.dumps = _into_file(module.dump), _with_numbers(module.dumps)
    else:
        for function in _SAVING[name]:
            setattr(module, function, _with_numbers(getattr(module, function)))


class _Finder:
    """Lets the modules that are watched be found as usual, and tells when each has been imported."""

    def __init__(self) -> None:
        self.names = {"torch.optim.optimizer", "torch.serialization", "safetensors.torch", "sqlite3", "pickle"}
        self.names |= _SAVING.keys()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
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
                _after_import(name, module)
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
