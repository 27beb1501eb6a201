"""The buckets that a job names, and those that regions have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.files.job.data_places import bucket_at, copies_near
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest

JOB = """\
name: reading
kind: command
run: "true"
data: {{corpus: {data}}}
data_buckets: {{{buckets}}}
checkpoint: {{path: s3://first/x/}}
resources: {{clouds: [{clouds}], regions: [{regions}], types: [c6i.large]}}
"""


def job(
    folder: Path,
    buckets: str,
    clouds: str = "aws",
    regions: str = "us-east-1, us-west-2",
    data: str = "corpus",
) -> JobSpec:
    (folder / "corpus").mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(
        JOB.format(buckets=buckets, clouds=clouds, regions=regions, data=data)
    )
    return load(folder / "job.yaml")


STORED = f"spotctl-data/sets/{'a' * 64}"


def test_a_region_has_the_bucket_that_the_job_names(tmp_path: Path) -> None:
    spec = job(
        tmp_path, "us-east-1: s3://first/, us-west-2: s3://west", data=f"s3://first/{STORED}"
    )
    assert [bucket_at(spec, "aws", name) for name in ("us-east-1", "us-west-2", "eu-west-1")] == [
        "s3://first",
        "s3://west",
        "",
    ]
    assert copies_near(spec, "aws", "us-west-2") == {"DATA_CORPUS": f"s3://west/{STORED}"}
    # The first bucket needs no copy, and objects below a prefix are not copied.
    assert copies_near(spec, "aws", "us-east-1") == {}
    assert (
        copies_near(replace(spec, data={"corpus": "s3://first/objects/"}), "aws", "us-west-2") == {}
    )


def test_a_region_of_azure_may_be_written_in_other_ways(tmp_path: Path) -> None:
    spec = job(tmp_path, "East US: az://box@account", "azure", "eastus")
    assert bucket_at(spec, "azure", "eastus") == "az://box@account"


@pytest.mark.parametrize(
    ("buckets", "clouds", "message"),
    [
        (
            "uswest2: s3://west",
            "aws",
            r"data_buckets\.uswest2: is not a region of aws; did you mean us-west-2",
        ),
        (
            "eu-west-1: s3://west",
            "aws",
            r"data_buckets\.eu-west-1: is not one of resources\.regions: \[us-east-1, us-",
        ),
        (
            "us-west-2: s3://west/folder",
            "aws",
            r"data_buckets\.us-west-2: .*a bucket without a folder: s3://BUCKET",
        ),
        (
            "us-west-2: west",
            "aws",
            r"data_buckets\.us-west-2: .*a bucket without a folder: s3://BUCKET",
        ),
        (
            "us-west-2: gs://west",
            "aws",
            r"us-west-2: is in aws, and gs://west is a bucket of another .*s3://BUCKET",
        ),
        ("us-west-2: az://box", "aws", r"data_buckets\.us-west-2: .*az://CONTAINER@ACCOUNT"),
    ],
)
def test_wrong_buckets_get_one_line(
    tmp_path: Path, buckets: str, clouds: str, message: str
) -> None:
    with pytest.raises(BadRequest, match=message) as refused:
        job(tmp_path, buckets, clouds)
    assert len(str(refused.value).splitlines()) == 1


def test_buckets_without_folders_or_without_clouds_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        BadRequest, match="data_buckets: is for folders of this computer under data"
    ):
        job(tmp_path, "us-west-2: s3://west", data="s3://first/objects/")
    with pytest.raises(BadRequest, match="data_buckets: applies to cloud machines"):
        job(tmp_path, "us-west-2: s3://west", "local", "sim-west")
