"""A script as a syntax tree: its calls and where they stand, its libraries, and the names that its
statements read, set and change.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

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
        return sorted(
            (node for node in self.nodes if isinstance(node, ast.Call)),
            key=lambda call: call.lineno,
        )

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {
            node.name: node
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    @cached_property
    def own_values(self) -> dict[str, ast.expr | None]:
        """Values of the attributes of `self`, by their names; None for one that is given
        several."""
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
                names |= {
                    alias.asname or alias.name: f"{node.module}.{alias.name}"
                    for alias in node.names
                }

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
        """The full name of what an expression names: `torch.optim.SGD` for `optim.SGD`; empty for
        any other.
        """
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

    def calls_of(self, name: str) -> list[ast.Call]:
        """The calls of a function or a method of this name, whatever it belongs to."""
        return [call for call in self.calls if self.called(call).rpartition(".")[2] == name]

    def code(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ast.unparse(node)


def read_source(path: Path) -> ScriptSource:
    """The script; BadRequest if there is none, or if it is not Python."""
    if path.is_dir():
        raise BadRequest(
            f"{path}: is a folder; name the script in it that trains, such as {path / 'train.py'}"
        )
    if path.suffix != ".py":
        raise BadRequest(
            f"{path}: is not a Python script; name a .py file, or a new .yaml file for a starter "
            "job"
        )

    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        files = sorted(file.name for file in path.parent.glob("*.py"))
        near = ", ".join(files[:5])
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
        raise BadRequest(
            f"{path}:{error.lineno or 1}: is not Python: {error.msg}; correct it"
        ) from None
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
"""The framework of each import; the first that a script has counts, before torch, which all others
may use."""

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

_PRESENT = {
    "spotctl",
    "agileml",
    "bidbrain",
    "pricing_data",
    "__future__",
    *sys.stdlib_module_names,
}


def libraries_of(source: ScriptSource, folder: Path) -> tuple[str, str]:
    """The framework of a script that runs in a folder, and what `pip install` takes for it."""
    imported = set[str]()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])

    frameworks = [name for package, name in _FRAMEWORKS.items() if package in imported]
    called = [source.called(call) for call in source.calls]
    trainers = [name for name in called if name.endswith("Trainer")]
    framework = frameworks[0] if frameworks else PLAIN
    if "transformers" in imported and any(name.startswith("transformers.") for name in trainers):
        framework = TRANSFORMERS

    places = dict.fromkeys((folder, source.path.resolve().parent))
    for place in places:
        requirements, project = place / "requirements.txt", place / "pyproject.toml"
        if requirements.is_file():
            return framework, f"-r {os.path.relpath(requirements, folder)}"
        if project.is_file() and "[project]" in project.read_text("utf-8", "replace"):
            return framework, os.path.relpath(place, folder)

    own = set[str]()
    for path in (path for place in places for path in place.glob("*")):
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py"))):
            own.add(path.stem)

    missing = imported - _PRESENT - own
    names = sorted(_PACKAGES.get(name, name.replace("_", "-")) for name in missing)
    return framework, " ".join(names)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LoopStatement = ast.For | ast.While
Statements = Sequence[ast.stmt]

QUIET = re.compile(
    r"^(print|logging|log|logger|wandb|mlflow|writer|tqdm|bar|pbar|progress\w*|time|datetime|math|os|sys|json|csv|gc|shutil"
    r"|pathlib|Path|warnings|plt|matplotlib|open|len|str|int|float|bool|round|sum|min|max|zip|enumerate|range|sorted|abs"
    r"|any|all|list|dict|tuple|set|isinstance|format|type|copy|iter|next|numpy)(\.|$|\()"
)
"""Functions and modules that show, measure or store."""


SyntaxT = TypeVar("SyntaxT", bound=ast.AST)


def nodes_of(kind: type[SyntaxT], *roots: ast.AST) -> list[SyntaxT]:
    """The nodes of one kind in trees."""
    nodes = (node for root in roots for node in ast.walk(root))
    return [node for node in nodes if isinstance(node, kind)]


def option_of(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first option of a call that has one of these names."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    return None


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Names in expressions, without those of comprehensions and lambdas."""
    roots = list(nodes)
    names = {node.id for node in nodes_of(ast.Name, *roots)}
    for root in roots:
        names -= _local(root)
    return names


def _local(root: ast.AST) -> set[str]:
    """Names that belong to comprehensions and lambdas."""
    targets = [node.target for node in nodes_of(ast.comprehension, root)]
    names = {node.id for node in nodes_of(ast.Name, *targets)}
    arguments = [node.args for node in nodes_of(ast.Lambda, root)]
    return names | {node.arg for node in nodes_of(ast.arg, *arguments)}


def names_set(block: Iterable[ast.stmt]) -> set[str]:
    """Names to which statements give a value, or of whose value they change a part."""
    names: set[str] = set()
    for statement in block:
        if isinstance(statement, Definition):
            names.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(
                node.ctx, ast.Store
            ):
                base: ast.AST = node
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                names |= names_in([base])
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        names -= _local(statement)

    return names


def names_read(statement: ast.stmt) -> set[str]:
    """Names that a statement reads; of a definition those that it does not give a value itself."""
    read, stored = set[str](), set[str]()
    for node in nodes_of(ast.Name, statement):
        if isinstance(node.ctx, ast.Load):
            read.add(node.id)
        elif isinstance(node.ctx, ast.Store):
            stored.add(node.id)

    read -= _local(statement)
    if isinstance(statement, ast.AugAssign):
        read |= names_set([statement])
    if isinstance(statement, Definition):
        read -= {node.arg for node in nodes_of(ast.arg, statement)}
        read -= stored
    return read


def names_changed(statement: ast.stmt) -> set[str]:
    """Names of objects that a statement may change: by a call on a line of its own, or by setting a
    part.
    """
    if isinstance(statement, Definition):
        return set()

    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names |= names_in([node.value])
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            names |= names_in([node])

    return names


def globals_of(function: ast.AST) -> set[str]:
    return {name for node in nodes_of(ast.Global, function) for name in node.names}


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of loops in it, whose breaks are their own."""
    if isinstance(statement, LoopStatement):
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from own_nodes(child)


def method_of(call: ast.Call) -> str:
    func = call.func
    if isinstance(func, ast.Attribute):
        return func.attr
    if isinstance(func, ast.Name):
        return func.id
    return ""


def has_backward(node: ast.AST) -> bool:
    if isinstance(node, Definition):
        return False
    return "backward" in map(method_of, nodes_of(ast.Call, node))


def is_call_of(source: ScriptSource, node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and source.called(node).rpartition(".")[2] in names


def unwrapped(node: ast.expr) -> ast.expr:
    """The loader in `enumerate(tqdm(loader))`."""
    around = ("enumerate", "tqdm", "resuming")
    while isinstance(node, ast.Call) and node.args and method_of(node) in around:
        node = node.args[0]
    return node


def same_place(node: ast.AST, other: ast.AST) -> bool:
    if type(node) is not type(other):
        return False
    places = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return all(getattr(node, place, None) == getattr(other, place, None) for place in places)
