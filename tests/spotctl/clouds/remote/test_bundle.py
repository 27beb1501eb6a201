"""What is brought to machines: the same content gives the same archive, and it runs alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spotctl.clouds.errors import ProviderError
from spotctl.clouds.remote.bundle import code_wheel, files_of, packages_archive, with_requirements
from spotctl.files.job.spec import Notify
from spotctl.run.remote_runner.installing import packages_on


def test_the_wheel_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = code_wheel(tmp_path / "a"), code_wheel(tmp_path / "b")
    assert first.digest == second.digest
    assert hashlib.sha256(first.path.read_bytes()).hexdigest() == first.digest
    assert code_wheel(tmp_path / "a") == first


def test_the_wheel_runs_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    with zipfile.ZipFile(code_wheel(tmp_path).path) as archive:
        archive.extractall(tmp_path / "unpacked")
    (info,) = (tmp_path / "unpacked").glob("spotctl-*.dist-info")
    assert {path.name for path in info.iterdir()} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
    }
    modules = ("spotctl.agent.rented", "spotctl.agent.node", "spotctl.agent.lease.iterator")
    # A machine of one cloud may keep its checkpoints in the object store of another.
    clouds = (
        "assert spotctl.agent.lease.notices.poller_of('gcp', {}) and "
        "len(spotctl.agent.cloud_parts.forms()) == 3"
    )
    code = (
        f"import {', '.join(modules)}, spotctl.agent.data.locations; {clouds}; "
        "print(spotctl.__file__)"
    )
    words = [sys.executable, "-E", "-s", "-S", "-c", code]
    done = subprocess.run(
        words, cwd=tmp_path / "unpacked", capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_packages_come_with_all_that_they_need(tmp_path: Path) -> None:
    archive = packages_archive(tmp_path, ["cloudpickle", "cryptography"])
    with zipfile.ZipFile(archive.path) as opened:
        tops = {name.partition("/")[0] for name in opened.namelist()}
        assert not [
            name
            for name in opened.namelist()
            if name.startswith(("..", "/")) or name.endswith(".pyc")
        ]
        opened.extractall(tmp_path / "unpacked")
    assert {"cloudpickle", "cryptography", "cffi"} <= tops
    code = (
        "import cloudpickle; from cryptography.hazmat.primitives.asymmetric import ed25519 as e; "
        "print(e.__file__)"
    )
    words = [sys.executable, "-E", "-s", "-S", "-c", code]
    done = subprocess.run(
        words, cwd=tmp_path / "unpacked", capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_packages_are_packed_once_for_the_same_versions(tmp_path: Path) -> None:
    first = packages_archive(tmp_path, ["cloudpickle"])
    changed = first.path.stat().st_mtime_ns
    assert packages_archive(tmp_path, ["cloudpickle"]) == first
    assert first.path.stat().st_mtime_ns == changed
    first.path.unlink()
    assert packages_archive(tmp_path, ["Cloudpickle"]) == first
    assert first.path.exists()


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="pip install no-such-package"):
        packages_archive(tmp_path, ["no_such_package"])


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
