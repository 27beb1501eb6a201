"""A script as a syntax tree: its calls, where they stand, and the names of what they call."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spotctl.home.errors import BadRequest

_MOST_BYTES = 2_000_000

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


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

    def scope(self, node: ast.AST) -> Scope:
        """The function in which a node stands, or the module."""
        for outer in self.above(node):
            if isinstance(outer, Scope):
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
    if len(content) > _MOST_BYTES:
        raise BadRequest(f"{path}: has {len(content):,} bytes; a script has at most {_MOST_BYTES:,}")
    return ScriptSource(path, text, _parsed(path, text))


def _parsed(path: Path, text: str) -> ast.Module:
    if not text.strip():
        raise BadRequest(f"{path}: is empty; name the script that trains")
    try:
        return ast.parse(text, str(path))
    except SyntaxError as error:
        raise BadRequest(f"{path}:{error.lineno or 1}: is not Python: {error.msg}; correct it") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadRequest(f"{path}: is not Python: {error}; correct it") from None
