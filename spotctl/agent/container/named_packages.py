"""The content of a job's environment, as its file says it, and its name on a machine."""

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"Kernel Module.*?\b(?P<major>\d+)\.\d")
_PLACES = ("store", "optional")
"""Fields that do not decide about the content."""


@dataclass(frozen=True, slots=True)
class NamedPackages:
    """The packages that a job names. `kind` is a row of `KINDS`, and `file` is in the job's folder.

    `digest` is of everything that decides, `python` a version or a range of versions, and `conda`
    has lists: its channels, packages, and those that pip installs. What was built is kept at
    `store`, if that is not empty. An `optional` environment is left out if it cannot be built.
    """

    kind: str
    digest: str
    file: str = ""
    python: str = ""
    conda: Mapping[str, Sequence[str]] = field(default_factory=dict)
    store: str = ""
    optional: bool = False

    @property
    def key(self) -> str:
        """The name of this environment on machines of this platform."""
        libc, version = platform.libc_ver()
        words = (*map(str, sys.version_info[:2]), platform.machine(), libc, version, driver())
        here = "-".join(re.sub(r"\W", "_", word) for word in words if word)
        decisive = {name: value for name, value in asdict(self).items() if name not in _PLACES}
        return f"{here}/{hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:24]}"


def driver() -> str:
    """The major version of NVIDIA's driver; empty without one."""
    try:
        match = _VERSION.search(_DRIVER.read_text())
    except OSError:
        return ""
    return "" if match is None else match["major"]
