"""Which version of this package a process runs: all processes of a job must run the same."""

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def code_version() -> str:
    """For example `0.1.0-1a2b3c4d`: the release, and a digest of the package's files. Messages have no versions of
    their own. Nodes may run different Pythons, except with a copied trainer (`agileml.copies`)."""
    try:
        release = version("spotctl")
    except PackageNotFoundError:
        release = "unknown"
    root = Path(__file__).parents[1]
    digest = sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{release}-{digest.hexdigest()[:8]}"
