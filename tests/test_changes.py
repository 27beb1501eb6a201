"""Where a change goes: what docs/internals/architecture.md says of each kind of change is what the
code shows.

Of each kind, one thing that exists is looked for: its words are names or strings in the files of
its row, and in no other file of the packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")


@dataclass(frozen=True)
class Sample:
    """A thing of the kind that a row of the table is about.

    `name` stands for NAME in the row. With `calls`, the words count only where they are defined or
    called. `elsewhere` are files that may mention the thing all the same, with the reason.
    """

    change: str
    words: tuple[str, ...]
    name: str = ""
    calls: bool = False
    elsewhere: dict[str, str] = field(default_factory=dict)


OF_FILES = "files without a column for the cloud are those of AWS, whose JSON can be imported, too"
OF_THE_PAPER = "figures printed in the dissertation"
REPRODUCED = "a result of the paper, reproduced"
SAMPLES = (
    *(
        Sample(
            "a cloud",
            (name,),
            name,
            elsewhere={
                "pricing_data/sources/files": OF_FILES,
                "pricing_data/sources/layouts": OF_FILES,
                "pricing_data/sources/observations": OF_FILES,
                "bidbrain/lab/gavel/pricing_tables": OF_THE_PAPER,
                "spotctl/files/job/resources": "an example of a key",
                "spotctl/files/job/spec": "an example of a key",
            },
        )
        for name in ("aws", "gcp", "azure")
    ),
    Sample("a Gavel policy", ("allox_policy", "allox"), "baselines"),
    Sample(
        "a strategy",
        ("TierML", "tierml"),
        "standard",
        elsewhere={"spotctl/lab/papers/market": REPRODUCED},
    ),
    Sample("a report column", ("usd_per_million_samples",)),
    Sample("a billing rule", ("FIRST_HOUR_FREE", "per-second-first-hour-free"), "aws"),
    Sample("a built-in trainer", ("MLR", "mlr"), "mlr"),
    Sample("a webhook shape", ("_DISCORD_LIMIT", "discord.com")),
    Sample("a flag of `launch`", ("max_cost",)),
    Sample("a lease time", ("LeaseTimes",), calls=True),
    Sample(
        "a stage threshold",
        ("Thresholds",),
        elsewhere={
            "spotctl/lab/papers/agileml": REPRODUCED,
            "agileml/runtime/attach": "a role as data names its classes",
        },
    ),
    Sample("an eviction model", ("boosted", "boosting"), "boosting"),
    Sample("an export format", (".csv.gz",)),
)


def rows() -> dict[str, list[str]]:
    """The files of each kind of change, as the table names them."""
    text = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Where a change goes")[2].partition("\n\n| ")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in f"| {table}".splitlines()[2:]]
    return {change.strip(): re.findall(r"`([\w/]+/[\w/]+)`", files) for change, files in cells}


@cache
def trees() -> dict[str, ast.Module]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        path.relative_to(ROOT).with_suffix("").as_posix(): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in paths
    }


def names(node: ast.AST) -> Iterator[str]:
    """The identifiers and strings of a node, whole; a docstring or a sentence equals no word."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for attribute in ("id", "attr", "arg", "name", "asname"):
        value = getattr(node, attribute, None)
        if isinstance(value, str):
            yield value.rpartition(".")[2]


def called(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield node.name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node.func.id


def mentioned_in(sample: Sample) -> set[str]:
    read = called if sample.calls else names
    return {
        file
        for file, tree in trees().items()
        if any(word in sample.words for n in ast.walk(tree) for word in read(n))
    }


def test_every_row_has_a_sample() -> None:
    assert {sample.change for sample in SAMPLES} == set(rows())
    assert len(rows()) == 12


@pytest.mark.parametrize(
    "sample", SAMPLES, ids=lambda sample: f"{sample.change} {sample.name}".strip()
)
def test_a_change_touches_the_files_of_its_row_only(sample: Sample) -> None:
    files = [file.replace("NAME", sample.name).rstrip("/") for file in rows()[sample.change]]
    known = trees()
    for file in files:
        assert file in known or (ROOT / file).is_dir(), f"{file} is not there"
    mentions = mentioned_in(sample)
    assert mentions, "the words of the sample are nowhere, so the test shows nothing"
    allowed = (*files, *sample.elsewhere)
    strays = [
        file
        for file in mentions
        if not any(file == place or file.startswith(f"{place}/") for place in allowed)
    ]
    assert not strays, (
        f"{sample.change}: {', '.join(sample.words)} stands outside the files of the row: {strays}"
    )


def test_the_test_sees_a_stray_mention() -> None:
    tree = ast.parse("TABLE = {'aws': 1}\nif cloud.name == gcp:\n    import spotctl.clouds.azure")
    seen = {word for node in ast.walk(tree) for word in names(node)}
    assert {"aws", "gcp", "azure"} <= seen
