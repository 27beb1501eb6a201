"""Loads the parts of a cloud that its machines need: the modules `machine`, `scheme` and `storage`
of its package.

They import this package, agileml and the standard library only, and are copied to machines with it.
The descriptor of a cloud, which its entry point names, is never loaded here.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

GROUP = "spotctl.clouds"
MACHINE, SCHEME, STORAGE = "machine", "scheme", "storage"


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


@cache
def clouds_by_scheme() -> Mapping[str, str]:
    """The clouds that have an object store, by the scheme of its locations."""
    parts = {cloud: cloud_part(cloud, SCHEME) for cloud in cloud_packages()}
    return {part.SCHEME: cloud for cloud, part in parts.items() if part is not None}


def forms() -> list[str]:
    """How locations in object stores are written."""
    return [form_of(cloud) for cloud in clouds_by_scheme().values()]


def form_of(cloud: str) -> str:
    """How locations in a cloud's object store are written."""
    part = cloud_part(cloud, SCHEME)
    assert part is not None
    return str(part.FORM)
