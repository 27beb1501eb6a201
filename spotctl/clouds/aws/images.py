"""Which image a machine boots: Ubuntu, or AWS's own with NVIDIA's drivers, named by public parameters of SSM. Pure.

Both are Ubuntu 24.04: cloud-init, Python 3.12, and the same start-up script on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing_data.accelerators import NVIDIA_OLD, driver_of
from spotctl.clouds.aws.rows import Row
from spotctl.clouds.errors import NotFound
from spotctl.home.errors import BadRequest

_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
_NVIDIA = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
_DEBIAN_NAMES = {"x86_64": "amd64", "arm64": "arm64"}

MIN_DISK_GIB = 30
"""Room for the image, Python packages and some data."""


@dataclass(frozen=True, slots=True)
class Ec2Hardware:
    """The properties of an instance type that decide which image it boots and how it is ordered."""

    name: str
    architecture: str
    gpus: tuple[str, ...] = ()
    is_burstable: bool = False
    can_cluster: bool = True

    @classmethod
    def of(cls, row: Row) -> Ec2Hardware:
        """Reads EC2's description of a type. Accelerators that NVIDIA did not make need drivers that we do not know."""
        gpus = row.get("GpuInfo", {}).get("Gpus", ())
        return cls(
            row["InstanceType"],
            next((name for name in row["ProcessorInfo"]["SupportedArchitectures"] if name in _DEBIAN_NAMES), ""),
            tuple(gpu["Name"] for gpu in gpus if gpu.get("Manufacturer", "").upper() == "NVIDIA"),
            bool(row.get("BurstablePerformanceSupported")),
            "cluster" in row.get("PlacementGroupInfo", {}).get("SupportedStrategies", ("cluster",)),
        )


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An image of a region: its root device has `least_gib` at least."""

    id: str
    root_device: str
    least_gib: int

    @classmethod
    def of(cls, row: Row, hardware: Ec2Hardware) -> MachineImage:
        """Reads EC2's description of an image. BadRequest: the type cannot boot this image."""
        id_ = row["ImageId"]
        if row.get("Architecture", hardware.architecture) != hardware.architecture:
            raise BadRequest(
                f"image {id_} is for {row['Architecture']}, and {hardware.name} is {hardware.architecture};"
                " name another image, or leave it out"
            )
        root = row.get("RootDeviceName") or "/dev/sda1"
        disks = (disk for disk in row.get("BlockDeviceMappings", ()) if disk.get("DeviceName") == root)
        return cls(id_, root, max((int(disk.get("Ebs", {}).get("VolumeSize") or 0) for disk in disks), default=0))

    def disk_gib(self, wanted: int | None) -> int:
        """The size of the disk. BadRequest: the image does not fit on the requested size."""
        if wanted is None:
            return max(self.least_gib, MIN_DISK_GIB)
        if wanted < self.least_gib:
            raise BadRequest(
                f"disk_gib is {wanted}, but image {self.id} needs {self.least_gib}; set at least that much"
            )
        return wanted


def parameter_for(hardware: Ec2Hardware) -> str:
    """The SSM parameter with the image for an instance type. NotFound: no image runs on this type."""
    if not hardware.architecture:
        raise NotFound(f"{hardware.name}: neither x86_64 nor arm64, so no image fits it")
    if too_old := sorted(gpu for gpu in hardware.gpus if driver_of(gpu) == NVIDIA_OLD):
        raise BadRequest(
            f"{hardware.name}: AWS's image has no driver for its {too_old[0]};"
            " name one that has (image: {ami: ami-...})"
        )
    if hardware.gpus:
        return _NVIDIA.format(hardware.architecture)
    return _UBUNTU.format(_DEBIAN_NAMES[hardware.architecture])


def is_image(name: str) -> bool:
    """Whether a name is the id of an image. BadRequest: the name is neither an id nor the name of a parameter."""
    if name.startswith("ami-"):
        return True
    if not name.startswith("/"):
        raise BadRequest(f"image {name!r} is neither an AMI (ami-...) nor the name of an SSM parameter (/...)")
    return False
