"""No process builds objects from bytes that a machine could have written: each decoder that can is
in a table.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")
TABLE: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("decoders.toml").read_text("utf-8")
)

PLAIN, ON_MACHINES = (
    "anyone: plain data",
    "the job's own program, perhaps on another machine: on machines only",
)
WRITTEN_BY = {
    PLAIN,
    ON_MACHINES,
    "chosen by its digest",
    "installed packages",
    "packed for sending",
    "sent by the launcher",
    "the job's user",
    "this package",
    "this process's parent or child",
    "written, not read",
}
"""Who can have written what a decoder reads. None of them is a machine, other than for plain
data."""

PLAIN_DECODERS = {"numpy.load", "torch.load(weights_only=True)", "pickle.Unpickler"}
"""The decoders for bytes of anyone. An `Unpickler` is here for its list of types, in a `find_class`
of its own."""

_DECODERS = re.compile(
    r"(c?[pP]ickle|_pickle|cloudpickle|ray\.cloudpickle|dill|joblib|marshal|shelve)\.(load|loads|Unpickler|open)"
    r"|torch\.((jit|hub|package|serialization)\.)?load|pandas\.read_pickle|numpy(\.lib\.format)?\.(load|read_array)"
    r"|tarfile\.(TarFile|open|TarFile\.open)|zipfile\.(ZipFile|PyZipFile|Path)|zipimport\.\w+|shutil\.unpack_archive"
    r"|yaml\.(full_|unsafe_)?load(_all)?|runpy\.\w+|os\.(system|popen)|subprocess\.(getoutput|getstatusoutput)"
    r"|asyncio\.create_subprocess_shell|importlib\.(import_module|machinery\.SourceFileLoader)"
    r"|eval|exec|compile|__import__"
)
_METHODS = re.compile(r"extract|extractall|exec_module|load_module")
_IN_TEXT = re.compile(
    r"\bimport\b[^\n]*\b(pickle|marshal|shelve|tarfile|zipfile|runpy)\b"
    r"|-m (zipfile|tarfile)\b|\b(tar) -\w*x|\b(unzip) |\b(eval) [\"$']"
)
_ANY = re.compile(
    r"pickle|dill|joblib|marshal|shelve|torch|numpy|pandas|\btar|unzip|zipfile|zipimport|unpack_archive|yaml|runpy|system|popen|getoutput|shell"
    r"|import_module|SourceFileLoader|\b(eval|exec|compile|__import__)\b(?<!re\.compile)|\.(extract|exec_module|load_module)"
)
"""A word of each of them: most modules have none, and need not be parsed."""
_OPTIONS = ("allow_pickle", "weights_only")


def uses(source: str) -> Iterator[str]:
    """The decoders that a module uses, each by its full name, with the options that decide what it
    builds.
    """
    if not _ANY.search(source):
        return
    nodes = [*ast.walk(ast.parse(source))]
    names, documents = _imported(nodes), set(_documents(nodes))
    called = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documents
        ):
            for found in _IN_TEXT.finditer(node.value):
                yield f"in a text: {next(filter(None, found.groups()))}"
        elif isinstance(node, ast.Call):
            yield from (
                "shell=True"
                for word in node.keywords
                if word.arg == "shell" and not _is(word.value, False)
            )
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            name, call = _full(node, names), called.get(id(node))
            if _DECODERS.fullmatch(name) and not _is_fixed(name, call):
                yield name + _options(call)
            elif (
                isinstance(node, ast.Attribute)
                and call is not None
                and _METHODS.fullmatch(node.attr)
            ):
                yield f".{node.attr}"


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """The full name of each imported name of a module."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    return names


def _full(node: ast.expr, names: dict[str, str]) -> str:
    """The dotted name of an expression, from the module that defines it; empty for others."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id).removeprefix("builtins.")
    if isinstance(node, ast.Attribute) and (above := _full(node.value, names)):
        return f"{above}.{node.attr}".removeprefix("builtins.")
    return ""


def _is_fixed(name: str, call: ast.Call | None) -> bool:
    """Whether a call imports what the code itself names, or compiles for an `eval`, which is listed
    itself.
    """
    if call is None or not call.args:
        return False
    if name == "compile":
        return len(call.args) > 2 and _is(call.args[2], "eval")
    return name == "importlib.import_module" and isinstance(call.args[0], ast.Constant)


def _options(call: ast.Call | None) -> str:
    given = [word for word in (call.keywords if call else ()) if word.arg in _OPTIONS]
    return (
        f"({', '.join(f'{word.arg}={ast.unparse(word.value)}' for word in given)})" if given else ""
    )


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _documents(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """The constants that only document, which stand alone as statements."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)


def _modules() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def test_every_decoder_is_in_the_table_with_who_can_have_written_its_input() -> None:
    found = {(file, use) for file, source in _modules() for use in uses(source)}
    listed = {(file, use) for file, row in TABLE.items() for use in row}
    assert found - listed == set(), (
        "a decoder that is not in tests/decoders.toml: who can have written its input?"
    )
    assert listed - found == set(), "a row of tests/decoders.toml that nothing uses"
    assert {by for row in TABLE.values() for by in row.values()} <= WRITTEN_BY


def test_what_anyone_may_have_written_is_read_as_plain_data() -> None:
    for file, row in TABLE.items():
        for use, by in row.items():
            assert by != PLAIN or use in PLAIN_DECODERS, (file, use)
        if row.get("pickle.Unpickler") == PLAIN:
            assert "def find_class" in (ROOT / file).read_text("utf-8")


def test_the_launcher_imports_no_module_that_loads_what_machines_kept_for_themselves() -> None:
    assert all(
        file.startswith("spotctl/integrations/")
        for file, row in TABLE.items()
        if ON_MACHINES in row.values()
    )
    for file, source in _modules():
        if file.startswith("spotctl/integrations/") or "integrations" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("spotctl.integrations") for name in names), file


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("import pickle as p\np.loads(b'')", "pickle.loads"),
        ("from pickle import loads as read\nread(b'')", "pickle.loads"),
        ("import pickle\nmap(pickle.load, [])", "pickle.load"),
        ("import pickle\nclass Reader(pickle.Unpickler): ...", "pickle.Unpickler"),
        ("import torch\ntorch.load(x)", "torch.load"),
        ("import torch\ntorch.load(x, weights_only=False)", "torch.load(weights_only=False)"),
        ("import numpy as np\nnp.load(x, allow_pickle=True)", "numpy.load(allow_pickle=True)"),
        ("import tarfile\ntarfile.open(x)", "tarfile.open"),
        ("found.extractall(x)", ".extractall"),
        ("import builtins\nbuiltins.exec(x)", "exec"),
        ("compile(x, y, 'exec')", "compile"),
        ("import subprocess\nsubprocess.run(x, shell=True)", "shell=True"),
        ("import subprocess\nsubprocess.run(x, shell=is_text)", "shell=True"),
        ("x = 'import os, zipfile'", "in a text: zipfile"),
        ("import importlib\nimportlib.import_module(x)", "importlib.import_module"),
        ("import yaml\nyaml.load(x, yaml.Loader)", "yaml.load"),
        ("import shelve\nshelve.open(x)", "shelve.open"),
    ],
)
def test_a_decoder_is_found_under_every_name(source: str, use: str) -> None:
    assert [*uses(source)] == [use]


@pytest.mark.parametrize(
    "source",
    [
        '"""Reads with pickle.load, or import zipfile."""',
        "import pickle\npickle.dumps(x)",
        "model.eval()",
        "re.compile(x)",
    ],
)
def test_what_decodes_nothing_is_not_listed(source: str) -> None:
    assert [*uses(source)] == []
