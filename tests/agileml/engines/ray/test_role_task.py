"""The package that a task takes along."""

from __future__ import annotations

import zipfile
from io import BytesIO

from agileml.engines.ray.role_task import zipped_package


def test_the_package_is_shipped_whole() -> None:
    names = zipfile.ZipFile(BytesIO(zipped_package())).namelist()
    assert {"agileml/__init__.py", "agileml/join.py", "agileml/engines/ray/role_task.py"} <= {
        *names
    }
