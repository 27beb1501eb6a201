"""The words of the product: in texts that users read, in names, in docstrings, and in the names of
files.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")
CODE = (*PACKAGES, "bench", "examples")

REPLACED = {
    "mandate": "constraints",
    "refuge": "on-demand fallback",
    "purse": "budget",
    "lookout": "watcher",
    "diary": "night log",
    "harvest(s|ed)?": "fetched rows",
    "workbench": "chunk runner",
    "keeper": "checkpoint sync",
    "fates?": "planned ending",
    "meetings?": "rendezvous",
    "steering": "live strategy",
    "commanding": "command workload",
    "dearer|dearest": "more expensive",
    "mend(s|ed|ing)?": "fix",
    "anew": "again, from scratch",
    "beside": "next to, in addition to",
    "befalls?": "faults to inject",
    "whoever|whomever": "name the subject",
    "nobody": "no process, no caller, you",
    "so many": "say which parameter",
    "(is|are|was|were) told of": "name the event",
    "goes by": "uses",
    "for all that": "even so",
    "left over": "orphaned, remaining",
    "of which (nobody|none)": "rephrase",
    "restless(ness)?": "volatility",
    "given? back|giv(es|ing) back|gave back": "return",
    r"(factor|maxim|minim|normal|optim|penal|real|recogn|regular|serial|summar)is(e[ds]?|ing|ation)": "-ize",
    "learnt|(mis)?spelt": "-ed",
    r"\w*(behavi|col|fav|neighb)our\w*": "-or",
}
"""Old words (whole words, any case) and what to write instead."""

PRONOUNS = {
    *("found", "told", "one", "ones", "it", "this", "that", "these", "those", "them", "they"),
    "under",
}
"""They stand for hundreds of different things: a name says which."""

KEPT = {("pricing_tables.py", "found")}
"""A name that `gavel analyze --json` prints."""

OPENING = re.compile(r"(What|The same|Those (of|that)|Of (a|an|the|all|what|which)|As the)\b")
"""How no docstring begins: it begins with the thing or the act."""

MOODS = re.compile(r"_?(CLEARLY|SURELY|TELLING|BY_FAR|ALIKE|MAX_USELESS|HOPELESS)")
"""Names of constants that do not say what the constant does."""

SHARED_FILE_NAMES = {
    "__init__",
    "base",
    "errors",
    "values",
    "commands",
    "tables",
    "plots",
    "as_json",
    "provider",
    "refusals",
}
"""Modules that have one role in several folders."""

_WORDS = re.compile(rf"\b({'|'.join(REPLACED)})\b", re.IGNORECASE)


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, docstrings included; of another file its lines."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def replaced_words(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {match.group()!r}: write {instead(match.group())!r}"
        for line, text in texts(path)
        for match in _WORDS.finditer(text)
    ]


def instead(word: str) -> str:
    return next(new for old, new in REPLACED.items() if re.fullmatch(old, word, re.IGNORECASE))


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a module gives: to variables, parameters, attributes, functions and
    classes."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
            ):
                yield node.lineno, name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield node.lineno, name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield node.lineno, name


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, its classes and functions, and those below attributes and
    constants.
    """
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.strip()


def bad_names(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}: say which thing it is"
        for line, name in names(parsed(path))
        if (name.strip("_") in PRONOUNS or MOODS.fullmatch(name)) and (path.name, name) not in KEPT
    ]


def bad_openings(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]!r}: begin with the thing or the "
        "act"
        for line, text in docstrings(parsed(path))
        if OPENING.match(text)
    ]


def stem(name: str) -> str:
    """A crude stem: `mixture`, `mixing` and `mixed` have one, `regime` and `regimes`, `plan` and
    `planner`.
    """
    short = re.sub(r"(t?ures?|ings?|eds?|ners?|ers?|ies|es|e|s|y)$", "", name)
    return short if len(short) > 2 else name


def folder_of(path: Path) -> str:
    return path.parent.relative_to(ROOT).as_posix()


def confusable_files(package: str) -> list[str]:
    """Modules that only an ending tells apart in one folder, and names that more than three folders
    have.
    """
    by_folder, by_name = defaultdict[Path, list[str]](list), defaultdict[str, set[str]](set)
    for path in modules(package):
        if path.stem not in SHARED_FILE_NAMES:
            by_folder[path.parent].append(path.stem)
            # The parts of a cloud have the same names in the folder of every cloud.
            by_name[path.stem].add(
                re.sub(
                    r"(spotctl/clouds)/(aws|azure|gcp|local|runpod|slurm|vast)\b",
                    r"\1/NAME",
                    folder_of(path),
                )
            )
    alike = [
        f"{folder.relative_to(ROOT)}: {first} and {second}"
        for folder, stems in by_folder.items()
        for first, second in combinations(stems, 2)
        if stem(first) == stem(second)
    ]
    return alike + [
        f"{name}.py in {', '.join(sorted(folders))}"
        for name, folders in by_name.items()
        if len(folders) > 3
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_replaced_word_in_a_string_of(package: str) -> None:
    lines = [line for path in modules(package) for line in replaced_words(path)]
    assert not lines, "\n".join(lines)


def test_no_replaced_word_in_the_documents() -> None:
    documents = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").iterdir(),
    ]
    lines = [line for path in sorted(documents) if path.is_file() for line in replaced_words(path)]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("folder", CODE)
def test_names_say_which_thing_they_mean(folder: str) -> None:
    lines = [line for path in modules(folder) for line in bad_names(path)]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("folder", CODE)
def test_docstrings_begin_with_the_thing_or_the_act(folder: str) -> None:
    lines = [line for path in modules(folder) for line in bad_openings(path)]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_of_files_tell_them_apart(package: str) -> None:
    lines = confusable_files(package)
    assert not lines, "\n".join(lines)


def test_a_replaced_word_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(
        'def price() -> str:\n    """A mandate is dearer."""\n    return f"{1} anew"\n'
    )
    assert [line.split(": write")[0] for line in replaced_words(module)] == [
        "module.py:2: 'mandate'",
        "module.py:2: 'dearer'",
        "module.py:3: 'anew'",
    ]


def test_a_pronoun_is_found_wherever_a_name_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(
        "def f(told, /, *, under_way):\n    found = [one for one in told]\n    self.found_ = "
        "found\n_CLEARLY = 2\ntry:\n    pass\nexcept E as it:\n    pass\n"
    )
    assert sorted(line.split(":")[2].strip() for line in bad_names(module)) == [
        *("_CLEARLY", "found", "found_", "it", "one", "told")
    ]


def test_a_docstring_that_begins_with_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(
        'LIMIT = 3\n"""What is allowed."""\n\ndef f():\n    """Whatever is allowed."""\n'
    )
    assert [line.split(":")[1] for line in bad_openings(module)] == ["2"]


def test_files_that_only_an_ending_tells_apart_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "package").mkdir()
    for name in ("mixture", "mixing", "regime", "regimes", "plan", "planner", "order", "offers"):
        (tmp_path / "package" / f"{name}.py").touch()
    assert [line.partition(": ")[2] for line in confusable_files("package")] == [
        *("mixing and mixture", "plan and planner", "regime and regimes"),
    ]
