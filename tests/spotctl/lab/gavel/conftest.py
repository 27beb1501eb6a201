"""Fixtures of the tests in this folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spotctl.command_line import Ended, spotctl

HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"


def prices(folder: Path, name: str, *rows: str) -> Path:
    path = folder / f"{name}.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Ten days: Amazon's V100 for a dollar, then two; Azure's P100 for half of one, its K80s for a
    tenth.
    """
    amazon = prices(
        tmp_path,
        "aws",
        "2020-03-01T00:00:00Z,aws,us-east-1,us-east-1a,p3.2xlarge,Linux/UNIX,1.0",
        "2020-03-05T00:00:00Z,aws,us-east-1,us-east-1a,p3.2xlarge,Linux/UNIX,2.0",
        "2020-03-11T00:00:00Z,aws,us-east-1,us-east-1a,p3.2xlarge,Linux/UNIX,2.0",
        "2020-03-01T00:00:00Z,aws,us-east-1,us-east-1a,m4.large,Linux/UNIX,0.05",
        "2020-03-11T00:00:00Z,aws,us-east-1,us-east-1a,m4.large,Linux/UNIX,0.05",
    )
    azure = prices(
        tmp_path,
        "azure",
        *(
            f"2020-03-{day:02}T00:00:00Z,azure,us_east,,{kind},linux,{price}"
            for day in (1, 11)
            for kind, price in (
                ("Standard_NC6s_v2", 0.5),
                ("Standard_NC12", 0.2),
                ("Standard_NC24rs_v2", 1.6),
            )
        ),
    )
    table = {
        name: {f"('{job}', 1)": {"null": rate} for job, rate in rates.items()}
        for name, rates in {
            "v100": {"vision": 8.0, "games": 2.0},
            "p100": {"vision": 3.0, "games": 1.5},
            "k80": {"vision": 0.5, "games": 1.0},
        }.items()
    }
    throughputs = tmp_path / "throughputs.json"
    throughputs.write_text(json.dumps(table))
    return {"prices": [str(amazon), str(azure)], "throughputs": str(throughputs)}


@pytest.fixture
def analyze(tmp_path: Path, files: dict[str, Any]) -> Callable[..., Ended]:
    """Analyzes the files on the terms that are given; a term that is None is left out."""

    def run(*words: str | Path, **terms: object) -> Ended:
        scenario = tmp_path / "scenario.yaml"
        values = {key: value for key, value in (files | terms).items() if value is not None}
        scenario.write_text(json.dumps(values))  # which is YAML, too
        return spotctl("lab", "gavel", "analyze", scenario, *words)

    return run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two kinds on one worker, one on two; together two small ones do 1.6 times the work of one."""
    alone = {"v100": (4.0, 2.0, 6.0), "k80": (1.0, 1.0, 0.0)}
    kinds = ("('small', 1)", "('other', 1)", "('small', 2)")
    found = {
        type_: {
            kind: {
                "null": rate,
                **({"('small', 1)": [rate * 0.8, rates[0] * 0.8]} if "1" in kind else {}),
            }
            for kind, rate in zip(kinds, rates, strict=True)
        }
        for type_, rates in alone.items()
    }
    path = tmp_path / "table.json.gz"
    path.write_bytes(gzip.compress(json.dumps(found).encode()))
    return path
