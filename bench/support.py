"""How much the tests need besides tests, and whether a module's path gives the path of its tests.

The tests of `package/room/module.py` stand in `tests/package/room/test_module.py`, or, where they
are many, in several files whose names begin so: `test_module_of_aws.py`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from bench.counts import PACKAGES


@dataclass(frozen=True)
class Support:
    """`lines` are those of files not named `test_*`, `outside` those that no test function has."""

    lines: int
    outside: int
    tested: int
    """Modules of the product, without `__init__` and `__main__`."""
    mirrored: int


def support_of(root: Path) -> Support:
    """The support of a checkout's tests."""
    lines = outside = 0
    for path in sorted((root / "tests").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        size = len(source.splitlines())
        lines += 0 if path.name.startswith("test_") else size
        outside += size - sum(map(_size_of_test, ast.walk(ast.parse(source))))

    modules = [
        path.relative_to(root)
        for name in PACKAGES
        for path in (root / name).rglob("*.py")
        if not path.name.startswith("__")
    ]
    return Support(lines, outside, len(modules), sum(has_tests(root, path) for path in modules))


def _size_of_test(node: ast.AST) -> int:
    if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
        return 0
    first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
    return (node.end_lineno or 0) - first + 1


def has_tests(root: Path, module: Path) -> bool:
    """Whether tests of a module stand where its path says."""
    folder = root / "tests" / module.parent
    return any(folder.glob(f"test_{module.stem}.py")) or any(
        folder.glob(f"test_{module.stem}_*.py")
    )
