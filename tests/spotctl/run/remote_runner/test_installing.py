"""What a runner elsewhere imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.clouds.remote.bundle import files_of, with_requirements
from spotctl.files.job.spec import Notify
from spotctl.run.remote_runner.installing import packages_on

OF_ALL = """
import importlib, io, sys
import cloudpickle, cryptography.x509, highspy, httpx, msgspec, numpy, pydantic, rich.live, scipy.optimize, typer, yaml
from scipy.special import betaincinv
import pyarrow, pyarrow.compute, pyarrow.csv, pyarrow.parquet
written = io.BytesIO()
table = pyarrow.table({"price": [1, 2, 3]})
pyarrow.parquet.write_table(table, written)
assert pyarrow.parquet.read_table(io.BytesIO(written.getvalue())).equals(table)
assert pyarrow.compute.sum(table["price"]).as_py() == 6
for name in sys.argv[1:]:
    importlib.import_module(name)
if "boto3" in sys.argv:
    for service in ("ec2", "iam", "pricing", "service-quotas", "ssm", "sts"):
        sys.modules["boto3"].client(service, "us-east-1")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cloud", "modules"),
    [
        ("aws", ("boto3",)),
        ("gcp", ("google.cloud.compute_v1", "google.auth")),
        ("azure", ("azure.identity", "azure.mgmt.compute", "azure.mgmt.resourcegraph")),
    ],
)
def test_what_a_runner_imports_works_without_what_is_left_out(
    tmp_path: Path, cloud: str, modules: tuple[str, ...]
) -> None:
    for name, path in files_of(with_requirements(packages_on(cloud, Notify())).values()):
        new = tmp_path / name
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, new)
        except OSError:
            shutil.copyfile(path, new)
    words = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{OF_ALL}",
        *modules,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
