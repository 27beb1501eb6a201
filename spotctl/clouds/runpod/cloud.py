"""The descriptor of RunPod, its settings, and the user's key. Imports nothing heavy."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pricing_data.known_clouds import CloudMarkets
from spotctl.home.cloud import Cloud, CloudAccount, CloudSettings, CloudWords, JobKeys, text
from spotctl.home.errors import BadRequest

CLOUD_NAME = "runpod"
SECURE, COMMUNITY = "secure", "community"
ADDRESS = "https://api.runpod.io"
_KEY_FILE = "~/.runpod/config.toml"
"""Where the official clients keep the key."""


@dataclass(frozen=True, slots=True)
class RunPodSettings:
    """`[runpod]`. `image` is a container image with apt, or with sshd and Python 3.11; `disk_gib`
    is for jobs that name no size. Machines of other people are left out unless `community`.
    """

    image: str = "nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04"
    disk_gib: int = 32
    community: bool = False

    def __post_init__(self) -> None:
        if self.disk_gib < 1:
            raise ValueError(f"1 or more in disk_gib, not {self.disk_gib}")


def address(setting: str | None) -> str:
    """The address of the API: the setting, or that of the official client's variable, or the public
    one.
    """
    return (setting or os.environ.get("RUNPOD_API_BASE_URL") or ADDRESS).rstrip("/")


def api_key() -> str | None:
    """The user's key, from where the official clients have it; None if there is none."""
    if key := os.environ.get("RUNPOD_API_KEY", "").strip():
        return key

    path = Path(_KEY_FILE).expanduser()
    try:
        written = tomllib.loads(path.read_text()) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise BadRequest(f"{path}: {error}; correct it, or set RUNPOD_API_KEY") from None
    # Both clients write it, in a table and without one.
    profile = written.get("default", {})
    return str(profile.get("api_key") or written.get("apikey") or "") or None


ACCOUNT = CloudAccount(
    "make a key at https://console.runpod.io/user/settings, and set RUNPOD_API_KEY",
    "docs/runpod.md#once",
    variables=("RUNPOD_API_KEY",),
    files=(("", "~/.runpod", "config.toml"),),
)

CLOUD = Cloud(
    name=CLOUD_NAME,
    words=CloudWords("RunPod", "RunPod", "Pods"),
    # Regions are data centers of the secure cloud, and countries of the community's.
    markets=CloudMarkets(
        region=r"runpod-[a-z]{2}|runpod-[a-z]{2,3}-[a-z]{2,3}-\d+",
        zone=f"{SECURE}|{COMMUNITY}",
        rank=5,
    ),
    settings=CloudSettings(
        RunPodSettings,
        {"runpod_url": text},
        variables={"runpod_url": "RUNPOD_API_BASE_URL"},
        image="image",
    ),
    account=ACCOUNT,
    job=JobKeys(
        "runpod",
        "On RunPod: a container image, or auto.",
        "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime",
        # docs.runpod.io, "Environment variables".
        ports=("RUNPOD_PUBLIC_IP", "RUNPOD_TCP_PORT_{}"),
    ),
)
