"""Finds a trainer by name (a built-in app, `module:Class`, or a Python file), and passes it its
arguments.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, isclass, signature
from math import inf, isfinite
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from agileml.apps import BUILT_IN, FRAMEWORKS
from agileml.apps.code import content_digest, digest_of, files_of, split, text_of, unpack
from agileml.errors import (
    NEEDS_TORCH,
    AgileMLError,
    BadArgument,
    BadTrainer,
    TrainerFailed,
    UnknownApp,
)
from agileml.trainer import Trainer
from agileml.user_code import described

_LOOP = ("agileml.torch", "Elastic(")
"""The words of a file with a training loop."""

METHODS: dict[str, tuple[str, ...]] = {
    "init": ("rng",),
    "shards": (),
    "step": ("shard", "lo", "hi", "params", "clock", "rng"),
    "loss": ("params", "sample"),
}
"""The required methods of a trainer and their parameters."""


@dataclass(frozen=True, slots=True)
class TrainerSource:
    """A trainer by name and arguments. Every node of a job receives this and loads the trainer
    itself.

    With a `framework`, one of FRAMEWORKS, the target is a function that makes what that trains.
    """

    target: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    framework: str = ""

    def load(self) -> Trainer:
        """Loads the trainer.

        UnknownApp if the name is unknown, BadArgument for wrong arguments, BadTrainer if a method
        is missing or has other parameters, TrainerFailed if the user's code raises.
        """
        if self.target in BUILT_IN:
            place, _, name = BUILT_IN[self.target].partition(":")
            app: type[object] = getattr(importlib.import_module(place), name)
            return cast("Trainer", build(self.target, app, self.arguments))

        file, attribute = split(self.target)
        if self.has_loop and file and not attribute:
            return _of_loop(partial(_run_script, Path(file)), file, self.arguments, is_program=True)

        if file:
            module = _import_file(Path(file))
            factory = (
                _attribute(module, attribute, self.target)
                if attribute
                else _from_file(module, file)
            )
        elif ":" in self.target:
            factory = _from_module(self.target)
        else:
            raise UnknownApp(
                f"unknown app {self.target!r}; choose one of {', '.join(BUILT_IN)},"
                " or pass module:Class, FILE.py or FILE.py:NAME"
            )

        if self.has_loop and not self.framework:
            return _of_loop(factory, self.target, self.arguments)
        _check_arguments(factory, self.target, self.arguments)
        make = partial(factory, **self.arguments)
        if self.framework:
            place, _, name = FRAMEWORKS[self.framework].partition(":")
            make = partial(getattr(importlib.import_module(place), name), make)
        with _executing(self.target):
            trainer = make()
        return check(trainer, self.target)

    @property
    def has_loop(self) -> bool:
        """Whether the user's file has a training loop of its own, which waits for work in a thread
        of its own.
        """
        return all(word in text_of(self.target) for word in _LOOP)

    def code(self) -> str:
        """The version of the code and its arguments, which must be the same on all nodes of a
        job."""
        name = Path(self.target).name if split(self.target)[0] else self.target
        digest = sha256(repr((name, sorted(self.arguments.items()))).encode())
        if self.target not in BUILT_IN:
            digest.update(digest_of(self.target))
        elif file := self.arguments.get("file"):
            # Nodes that read other ratings would train something else.
            digest.update(content_digest(str(file)))

        try:
            release = version("spotctl")
        except PackageNotFoundError:
            release = "unknown"
        return f"{release}+{digest.hexdigest()[:12]}"

    def files(self) -> dict[str, bytes]:
        """The user's code by relative paths, for nodes of other computers; empty if it is installed
        everywhere.
        """
        if self.target in BUILT_IN:
            return {}
        return files_of(self.target)

    def unpack(self, files: Mapping[str, bytes], folder: Path) -> "TrainerSource":
        """Writes the trainer's files to a folder, and returns the source that loads the trainer
        from there.
        """
        if files:
            return replace(self, target=unpack(files, folder, self.target))
        return self


def check(trainer: object, where: str) -> Trainer:
    """Returns the object if it has a trainer's methods with the right parameters; BadTrainer
    otherwise.
    """
    absent = _absent(trainer)
    if absent:
        raise BadTrainer(
            f"{where}: {type(trainer).__name__} lacks {_listed(absent)}; a trainer has "
            f"{_listed(METHODS)}"
        )

    for method, passed in METHODS.items():
        try:
            signature(getattr(trainer, method)).bind(*passed)
        except TypeError as error:
            wanted = ", ".join(("self", *passed))
            raise BadTrainer(f"{where}: {method} must be {method}({wanted}): {error}") from None

    return cast("Trainer", trainer)


def parse_arguments(texts: list[str]) -> dict[str, object]:
    """Parses arguments of the form `name=value`; a value that looks like a number becomes one."""
    arguments: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise BadArgument(f"invalid argument {text!r}; write name=value")
        if name in arguments:
            raise BadArgument(f"argument {name} is given more than once")
        for convert in (int, float, str):
            try:
                arguments[name] = convert(value)
                break
            except ValueError:
                continue

    return arguments


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UnknownApp(f"{path}: no such file")

    spec = spec_from_file_location(f"_agileml_job_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)

    # Dataclasses and pickle look up a class's module by name; the file may import others from its
    # folder.
    sys.modules[spec.name] = module
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    with _executing(str(path)):
        spec.loader.exec_module(module)

    return module


def _from_file(module: ModuleType, where: str) -> Callable[..., object]:
    """A module's function `trainer`, or else its only class with a trainer's methods."""
    function = getattr(module, "trainer", None)
    if callable(function):
        return cast("Callable[..., object]", function)

    classes = [
        each
        for each in vars(module).values()
        if isclass(each) and each.__module__ == module.__name__
    ]

    complete = [each for each in classes if not _absent(each)]
    if len(complete) == 1:
        return cast("Callable[..., object]", complete[0])
    if complete:
        names = ", ".join(each.__name__ for each in complete)
        raise BadTrainer(
            f"{where} defines several trainers ({names}); add a function trainer() that returns one"
        )

    nearest = min(classes, key=lambda each: len(_absent(each)), default=None)
    hint = ""
    if nearest is not None and len(_absent(nearest)) < len(METHODS):
        hint = f"; {nearest.__name__} lacks {_listed(_absent(nearest))}"
    raise BadTrainer(
        f"{where} defines neither a function trainer() nor a class with {_listed(METHODS)}{hint}"
    )


def _from_module(target: str) -> Callable[..., object]:
    name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), attribute)):
        raise UnknownApp(f"{target!r} is not a class; write module:Class")

    try:
        with _executing(name):
            module = importlib.import_module(name)
    except TrainerFailed as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and name.startswith(
            error.__cause__.name or name
        ):
            raise UnknownApp(
                f"{target}: no module {error.__cause__.name!r} on the import path"
            ) from None
        raise

    return _attribute(module, attribute, target)


def _attribute(module: object, attribute: str, target: str) -> Callable[..., object]:
    """The maker of a trainer by its name in a module: a class or a function; a trainer itself is
    wrapped in one.
    """
    maker = getattr(module, attribute, None)
    if maker is None:
        place = target.rpartition(":")[0]
        raise UnknownApp(
            f"{target}: {place} defines no {attribute}; write module:Class or FILE.py:NAME"
        )
    return maker if callable(maker) else lambda: maker


def _check_arguments(
    factory: Callable[..., object], where: str, arguments: Mapping[str, object]
) -> None:
    try:
        accepted = signature(factory)
        accepted.bind(**arguments)
    except TypeError as error:
        known = [
            each.name for each in accepted.parameters.values() if each.kind != Parameter.VAR_KEYWORD
        ]
        raise BadArgument(
            f"{where}: {error}; it takes {', '.join(known) or 'no arguments'}"
        ) from None


def _of_loop(
    function: Callable[..., object],
    where: str,
    arguments: Mapping[str, object],
    *,
    is_program: bool = False,
) -> Trainer:
    """The trainer of the loop that a function comes to, or that it returns. A program gets options
    as arguments.
    """
    run_to_loop = importlib.import_module("agileml.torch.loop_trainer").run_to_loop
    if not is_program:
        _check_arguments(function, where, arguments)
    with _executing(where):
        if is_program:
            options = [where, *(f"--{name}={value}" for name, value in arguments.items())]
            trainer = run_to_loop(function, options)
        else:
            trainer = run_to_loop(partial(function, **arguments))

    if trainer is None:
        raise BadTrainer(
            f"{where}: it ended before it came to a loop over an Elastic: for step, batch in "
            "elastic"
        )
    return check(trainer, where)


def _run_script(path: Path) -> None:
    """Runs a file as Python runs a program, but leaves the module `__main__` of this process as it
    is.
    """
    module = ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules[f"_agileml_job_{path.stem}"] = module
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    # The user's own program.
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102


@contextmanager
def _executing(where: str) -> Iterator[None]:
    """User code runs here; any exception becomes a TrainerFailed that says where it was raised."""
    try:
        yield
    except AgileMLError:
        raise
    except SyntaxError as error:
        raise TrainerFailed(f"{where}, line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        cure = f" ({NEEDS_TORCH})" if error.name == "torch" else ""
        raise TrainerFailed(f"{where}: {described(error)}{cure}") from error
    except Exception as error:
        raise TrainerFailed(f"{where}: {described(error)}") from error


def _absent(candidate: object) -> list[str]:
    return [method for method in METHODS if not callable(getattr(candidate, method, None))]


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(f"{name}()" for name in names)


App = TypeVar("App")


# Stands for a field of type int.
def whole(default: int, help_text: str, least: int = 1) -> Any:  # noqa: ANN401
    """A field for a whole number."""
    return field(
        default=default,
        metadata={"least": least, "inclusive": True, "help": help_text, "type": int},
    )


def number(default: float, help_text: str, least: float = 0.0, inclusive: bool = False) -> Any:  # noqa: ANN401
    """A field for a finite number."""
    return field(
        default=default,
        metadata={"least": least, "inclusive": inclusive, "help": help_text, "type": float},
    )


def text(default: str, help_text: str) -> Any:  # noqa: ANN401 - stands for a field of type str
    """A field for text."""
    return field(default=default, metadata={"help": help_text, "type": str})


def build(name: str, app: type[App], arguments: Mapping[str, object]) -> App:
    """Creates an app from converted and checked arguments; BadArgument names the argument, its
    value and its bound.
    """
    known: dict[str, Field[Any]] = {each.name: each for each in fields(app) if each.init}  # type: ignore[arg-type]
    for argument in arguments:
        if argument not in known:
            described = ", ".join(
                f"{each.name} ({each.metadata['help']})" for each in known.values()
            )
            raise BadArgument(f"{name} has no argument {argument!r}; it takes {described}")

    return app(
        **{
            argument: _convert(name, known[argument], value)
            for argument, value in arguments.items()
        }
    )


def _convert(app: str, argument: Field[Any], value: object) -> int | float | str:
    if argument.metadata["type"] is str:
        return str(value)

    least: float = argument.metadata["least"]
    inclusive: bool = argument.metadata["inclusive"]
    bounds = ""
    if least > -inf:
        bounds = f" {'of at least' if inclusive else 'above'} {least:g}"

    wanted = argument.metadata["type"]
    kind = "whole number" if wanted is int else "number"
    problem = BadArgument(f"{app}: {argument.name} is {value!r}; it must be a {kind}{bounds}")
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        raise problem

    try:
        converted: int | float = wanted(value)
    except (ValueError, OverflowError):
        raise problem from None

    within = converted >= least if inclusive else converted > least
    if not isfinite(converted) or not within or (isinstance(value, float) and converted != value):
        raise problem

    return converted
