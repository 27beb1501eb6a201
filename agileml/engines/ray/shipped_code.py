"""This package as a zip file, for machines that do not have this very version of it."""

import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path

_DISTRIBUTION = "spotctl"


def zipped_package() -> bytes:
    """The package's modules, and the release's metadata, which is part of the version that nodes compare."""
    root = Path(__file__).parents[2]
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*.py")):
            file.write(path, path.relative_to(root.parent))
        try:
            release = distribution(_DISTRIBUTION)
        except PackageNotFoundError:
            return content.getvalue()
        metadata = release.read_text("METADATA") or ""
        file.writestr(f"{_DISTRIBUTION}-{release.version}.dist-info/METADATA", metadata)
    return content.getvalue()
