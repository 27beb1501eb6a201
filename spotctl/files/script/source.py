"""A script as a syntax tree: its calls and where they stand, and its libraries."""

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
    def classes(self) -> set[str]:
        return {node.name for node in self.nodes if isinstance(node, ast.ClassDef)}

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
        near = (
            ", ".join(sorted(file.name for file in path.parent.glob("*.py"))[:5])
            if path.parent.is_dir()
            else ""
        )
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
    names_of = [alias.name for node in imports for alias in node.names] + [
        node.module or "" for node in froms
    ]
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
    own = {
        path.stem
        for path in files
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    }

    names = sorted(
        _PACKAGES.get(name, name.replace("_", "-")) for name in imported - _PRESENT - own
    )
    return Libraries(framework, " ".join(names))


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
