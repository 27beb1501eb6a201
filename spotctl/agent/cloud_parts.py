"""Loads the parts of a cloud that its machines need: the modules `machine` and `storage` of the cloud's package.

They import this package, agileml and the standard library only, and are copied to machines with it. The descriptor of a
cloud, which its entry point names, is never loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

GROUP = "spotctl.clouds"
MACHINE, STORAGE = "machine", "storage"


@cache
def cloud_packages() -> Mapping[str, str]:
    """The packages of the known clouds."""
    return {entry.name: entry.module.rpartition(".")[0] for entry in entry_points(group=GROUP)}


def cloud_part(cloud: str, name: str) -> ModuleType | None:
    """A module of a cloud's package; None if the cloud is unknown here, or has no such module."""
    if cloud not in cloud_packages():
        return None
    module = f"{cloud_packages()[cloud]}.{name}"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, cloud_packages()[cloud]):
            raise
        return None
