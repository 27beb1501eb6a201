"""The trained model as an .npz file."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from agileml.errors import AgileMLError
from agileml.job import Counters
from agileml.params.layout import Array
from pricing_data.atomic_write import atomic_write


def save_model(model: Mapping[str, Array], path: Path) -> None:
    """Writes the arrays; the file is complete or absent."""
    # numpy.savez takes names as keyword arguments, which some parameter names cannot be.
    with atomic_write(path) as out, zipfile.ZipFile(out, "w") as archive:
        for name, array in model.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def check_nothing_lost(counters: Counters) -> None:
    """Raises AgileMLError if the model lacks updates or contains some twice."""
    if counters.lost or counters.doubled:
        raise AgileMLError(
            f"{counters.lost:,} updates were lost and {counters.doubled:,} applied twice, which is a bug in spotctl:"
            " do not use this model, and report the iteration log"
        )
