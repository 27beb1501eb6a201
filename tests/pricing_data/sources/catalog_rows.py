"""Rows in the format of the public SkyPilot catalog, drawn here; none is from the catalog."""

from __future__ import annotations

from collections.abc import Iterable

AWS_COLUMNS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
    "AvailabilityZone,Arch"
)
GCP_COLUMNS = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,"
    "Price,SpotPrice"
)


def csv_of(columns: str, rows: Iterable[str]) -> bytes:
    """A file of the catalog."""
    return ("\n".join((columns, *rows)) + "\n").encode()


def aws_row(
    type_: str = "p4d.24xlarge",
    gpu: str = "A100,8",
    size: str = "96.0,1152.0",
    price: str = "30.5",
    spot: str = "11.25",
    place: str = "us-east-1,use1-az1",
) -> str:
    """A machine of AWS, by default with eight GPUs; `GpuInfo` has commas in quotes."""
    info = "\"{'Gpus': [{'Name': 'A100', 'Manufacturer': 'NVIDIA'}]}\"" if gpu != "," else ""
    return f"{type_},{gpu},{size},{info},{price},{spot},{place},x86_64"


def gcp_row(
    type_: str = "a2-highgpu-8g",
    size: str = "96.0,680.0",
    price: str = "6.5",
    spot: str = "2.5",
    place: str = "us-central1,us-central1-a",
) -> str:
    """A machine of Google Cloud without its GPUs."""
    return f"{type_},{size},,,,{place},{price},{spot}"


def gcp_gpus(
    gpu: str = "A100,8",
    price: str = "23.5",
    spot: str = "9.5",
    place: str = "us-central1,us-central1-a",
) -> str:
    """GPUs of Google Cloud without their machine."""
    return f",,,{gpu},{{'Gpus': [{{'MemoryInfo': {{}}}}]}},{place},{price},{spot}"


def many_aws_rows(megabytes: float) -> bytes:
    """A file of AWS of this size, with as many types, regions and zones as there are."""
    zones = [
        (f"{area}-{side}-{number}", f"{area}{side[0]}{number}-az{zone}")
        for area in ("us", "eu", "ap")
        for side in ("east", "west", "north", "south")
        for number in (1, 2, 3)
        for zone in (1, 2, 3, 4)
    ]
    rows = []
    length = 0
    for kind in range(100_000):
        for at, (region, zone) in enumerate(zones):
            cents = (kind * 7 + at) % 3000 + 1
            row = (
                f"c{kind}.24xlarge,,,96.0,192.0,,{2 * cents / 1e4},{cents / 1e4:.6f},{region},"
                f"{zone},x86_64"
            )
            rows.append(row)
            length += len(row) + 1
        if length >= megabytes * 1e6:
            break
    return csv_of(AWS_COLUMNS, rows)
