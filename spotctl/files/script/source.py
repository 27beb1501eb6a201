"""A script as a syntax tree: its calls and where they stand, its libraries, and the arguments of its command line."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spotctl.home.errors import BadRequest

_MAX_BYTES = 2_000_000

ScriptScope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ScriptSource:
    """The text of a script and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: parent for parent in self.nodes for child in ast.iter_child_nodes(parent)}

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls, in the order of their lines."""
        return sorted((node for node in self.nodes if isinstance(node, ast.Call)), key=lambda call: call.lineno)

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {node.name: node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}

    @cached_property
    def classes(self) -> set[str]:
        return {node.name for node in self.nodes if isinstance(node, ast.ClassDef)}

    @cached_property
    def own_values(self) -> dict[str, ast.expr | None]:
        """Values of the attributes of `self`, by their names; None for one that is given several."""
        values: dict[str, ast.expr | None] = {}
        for node in self.nodes:
            if not isinstance(node, ast.Assign):
                continue
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for place, given in pairs:
                if isinstance(place, ast.Attribute) and self.dotted(place.value) == "self":
                    values[place.attr] = None if place.attr in values else given
        return values

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Full names of imported names: `np` for `numpy`, `optim` for `torch.optim`."""
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {alias.asname: alias.name for alias in node.names if alias.asname}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return names

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that contain a node, from the innermost."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> ScriptScope:
        """The function in which a node stands, or the module."""
        for outer in self.above(node):
            if isinstance(outer, ScriptScope):
                return outer
        return self.tree

    def dotted(self, node: ast.AST) -> str:
        """The full name of what an expression names: `torch.optim.SGD` for `optim.SGD`; empty for any other."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Call):
            # A method of what a call returns: `Path(folder).mkdir`.
            return ".".join([f"{self.dotted(node.func)}()", *reversed(parts)])
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])

    def called(self, call: ast.Call) -> str:
        return self.dotted(call.func)

    def code(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ast.unparse(node)


def read_source(path: Path) -> ScriptSource:
    """The script; BadRequest if there is none, or if it is not Python."""
    if path.is_dir():
        raise BadRequest(f"{path}: is a folder; name the script in it that trains, such as {path / 'train.py'}")
    if path.suffix != ".py":
        raise BadRequest(f"{path}: is not a Python script; name a .py file, or a new .yaml file for a starter job")
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        near = ", ".join(sorted(file.name for file in path.parent.glob("*.py"))[:5]) if path.parent.is_dir() else ""
        there = f"; Python files there: {near}" if near else ""
        raise BadRequest(f"{path}: there is no such script{there}") from None
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadRequest(f"{path}: is not Python: it is not text in UTF-8") from None
    if len(content) > _MAX_BYTES:
        raise BadRequest(f"{path}: has {len(content):,} bytes; a script has at most {_MAX_BYTES:,}")

    if not text.strip():
        raise BadRequest(f"{path}: is empty; name the script that trains")
    try:
        return ScriptSource(path, text, ast.parse(text, str(path)))
    except SyntaxError as error:
        raise BadRequest(f"{path}:{error.lineno or 1}: is not Python: {error.msg}; correct it") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadRequest(f"{path}: is not Python: {error}; correct it") from None


LIGHTNING, TRANSFORMERS, TORCH, KERAS, SKLEARN, JAX, PLAIN = (
    "lightning",
    "transformers",
    "torch",
    "keras",
    "scikit-learn",
    "jax",
    "Python",
)
_FRAMEWORKS = {
    "lightning": LIGHTNING,
    "pytorch_lightning": LIGHTNING,
    "tensorflow": KERAS,
    "keras": KERAS,
    "jax": JAX,
    "flax": JAX,
    "torch": TORCH,
    "sklearn": SKLEARN,
}
"""The framework of each import; the first that a script has counts, before torch, which all others may use."""

_PACKAGES = {
    "sklearn": "scikit-learn",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "pytorch_lightning": "pytorch-lightning",
    "google": "google-cloud-storage",
    "attr": "attrs",
    "git": "gitpython",
    "faiss": "faiss-cpu",
}
"""Packages that have another name than what they install."""

_PRESENT = {"spotctl", "agileml", "bidbrain", "pricing_data", "__future__", *sys.stdlib_module_names}


@dataclass(frozen=True, slots=True)
class Libraries:
    """The framework, what `pip install` takes, and the file that says so, if there is one."""

    framework: str
    install: str = ""
    file: str = ""


def libraries_of(source: ScriptSource, folder: Path) -> Libraries:
    """The libraries of a script that runs in a folder."""
    imports = [node for node in source.nodes if isinstance(node, ast.Import)]
    froms = [node for node in source.nodes if isinstance(node, ast.ImportFrom) and not node.level]
    names_of = [alias.name for node in imports for alias in node.names] + [node.module or "" for node in froms]
    imported = {name.partition(".")[0] for name in names_of} - {""}
    frameworks = [name for package, name in _FRAMEWORKS.items() if package in imported]
    uses_trainer = "transformers" in imported and any(
        source.called(call).startswith("transformers.") and source.called(call).endswith("Trainer")
        for call in source.calls
    )
    framework = TRANSFORMERS if uses_trainer else next(iter(frameworks), PLAIN)
    for place in dict.fromkeys((folder, source.path.resolve().parent)):
        if (place / "requirements.txt").is_file():
            name = _relative(place / "requirements.txt", folder)
            return Libraries(framework, f"-r {name}", name)
        project = place / "pyproject.toml"
        if project.is_file() and "[project]" in project.read_text("utf-8", "replace"):
            name = _relative(place, folder)
            return Libraries(framework, name, "pyproject.toml")
    files = [path for place in (folder, source.path.resolve().parent) for path in place.glob("*")]
    own = {path.stem for path in files if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))}
    names = sorted(_PACKAGES.get(name, name.replace("_", "-")) for name in imported - _PRESENT - own)
    return Libraries(framework, " ".join(names))


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: how it is written (`--save-dir`, or a positional's name), and the name that holds its value."""

    flag: str
    name: str
    default: object = None
    required: bool = False
    is_switch: bool = False

    @property
    def is_positional(self) -> bool:
        return not self.flag.startswith("-")

    def given(self, value: str) -> str:
        """The words that give the argument a value on a command line."""
        if self.is_switch:
            return self.flag
        return value if self.is_positional else f"{self.flag} {value}"


def arguments_of(source: ScriptSource) -> tuple[Argument, ...]:
    """All arguments, in the order of the script; the first definition of a name counts."""
    arguments: dict[str, Argument] = {}
    for argument in (*_declared(source), *_of_functions(source), *_of_dataclasses(source)):
        arguments.setdefault(argument.name, argument)
    return tuple(arguments.values())


def _declared(source: ScriptSource) -> Iterator[Argument]:
    """Arguments of argparse and of click, which are declared by calls."""
    for call in source.calls:
        name = source.called(call)
        words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        if not words:
            continue
        if name.endswith(".add_argument"):
            yield _argument(words, call, is_positional=not words[0].startswith("-"))
        elif name in ("click.option", "click.argument"):
            yield _argument(words, call, is_positional=name == "click.argument")


def _argument(words: list[str], call: ast.Call, *, is_positional: bool) -> Argument:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    flags = [word for word in words if word.startswith("-")] or words
    flag = max(flags, key=lambda word: (word.startswith("--"), len(word))).partition("/")[0]
    name = _text(given.get("dest")) or next((word for word in words if word.isidentifier()), flag)
    default = _constant(given.get("default"))
    optional = _text(given.get("nargs")) in ("?", "*") or "default" in given
    required = _constant(given.get("required")) is True or (is_positional and not optional)
    is_switch = _text(given.get("action")) == "store_true" or _constant(given.get("is_flag")) is True
    return Argument(flag, name.lstrip("-").replace("-", "_"), default, required, is_switch)


def _of_functions(source: ScriptSource) -> Iterator[Argument]:
    """Parameters of the functions that typer and fire make a command of."""
    names = command_functions(source)
    for function in source.functions.values():
        decorators = (
            decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in function.decorator_list
        )
        is_typer = "typer" in source.text and any(source.dotted(item).endswith(".command") for item in decorators)
        if function.name not in names and (not is_typer or "click" in source.aliases.values()):
            continue

        known = function.args
        ordered = [*known.posonlyargs, *known.args]
        defaults = [None] * (len(ordered) - len(known.defaults)) + list(known.defaults)
        for parameter, given in (
            *zip(ordered, defaults, strict=True),
            *zip(known.kwonlyargs, known.kw_defaults, strict=True),
        ):
            # typer.Option(default, ...), where an ellipsis stands for none.
            default = next(iter(given.args), None) if isinstance(given, ast.Call) else given
            missing = default is None or _constant(default) is ...
            flag = parameter.arg if missing else f"--{parameter.arg.replace('_', '-')}"
            yield Argument(flag, parameter.arg, None if missing else _constant(default), missing)


def command_functions(source: ScriptSource) -> set[str]:
    """The functions that a call of typer or fire makes a command of."""
    made = (call.args[0] for call in source.calls if source.called(call) in ("typer.run", "fire.Fire") and call.args)
    return {function.id for function in made if isinstance(function, ast.Name)}


def _of_dataclasses(source: ScriptSource) -> Iterator[Argument]:
    """Fields of the dataclasses that an `HfArgumentParser` of transformers is given."""
    parsers = [call for call in source.calls if source.called(call).endswith("HfArgumentParser")]
    parsed = {node.id for parser in parsers for node in ast.walk(parser) if isinstance(node, ast.Name)}
    if "TrainingArguments" in parsed or "Seq2SeqTrainingArguments" in parsed:
        yield Argument("--output_dir", "output_dir", "trainer_output")
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in parsed:
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                value, missing = field.value, field.value is None
                if isinstance(value, ast.Call):
                    given = {keyword.arg: keyword.value for keyword in value.keywords}
                    value, missing = given.get("default"), not given.keys() & {"default", "default_factory"}
                yield Argument(f"--{field.target.id}", field.target.id, _constant(value), missing)


def _constant(node: ast.AST | None) -> object:
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _text(node: ast.AST | None) -> str:
    value = _constant(node)
    return value if isinstance(value, str) else ""
