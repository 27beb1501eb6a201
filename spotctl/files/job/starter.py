"""The starter file that `spotctl init` writes."""

from importlib.resources import files
from pathlib import Path

from spotctl.files.new_file import write_new


def starter_text() -> str:
    """A commented job that runs without changes."""
    return files("spotctl.files.job").joinpath("starter_job.yaml").read_text("utf-8")


def write_starter(path: Path, *, force: bool = False) -> None:
    """Writes the starter file."""
    write_new(path, starter_text(), force=force)
