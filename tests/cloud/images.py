"""The images that the simulated clouds have: those of `images.csv`, which lists public catalogs and
documentation.

`read` is the day on which a source was read, and `dated` that on which it says it was written. The
`none` of some sources is honest: machines of tests boot these images, and no default names them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class KnownImage(NamedTuple):
    """An image, or what finds the newest one of a kind, under the name by which the cloud knows
    it."""

    name: str
    architecture: str
    source: str


@cache
def images(cloud: str) -> Mapping[str, KnownImage]:
    """The images of a cloud by their names in small letters."""
    with Path(__file__).with_name("images.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["cloud"] == cloud]
    return {
        row["name"].lower(): KnownImage(row["name"], row["architecture"], row["source"])
        for row in rows
    }
