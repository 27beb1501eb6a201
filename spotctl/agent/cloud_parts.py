"""Loads the parts of a cloud that its machines need: its package, which says how locations in its
object store are written, and the modules `machine` and `storage` of the package.

They import this package, agileml and the standard library only, and are copied to machines with it.
The descriptor of a cloud, which its entry point names, is never loaded here.
"""

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


def cloud_part(cloud: str, name: str = "") -> ModuleType | None:
    """A module of a cloud's package, or the package itself; None if the cloud is unknown here, or
    has no such module."""
    if cloud not in cloud_packages():
        return None

    package = cloud_packages()[cloud]
    module = f"{package}.{name}" if name else package
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, package):
            raise
        return None


@cache
def clouds_by_scheme() -> Mapping[str, str]:
    """The clouds that have an object store, by the scheme of its locations."""
    packages = {cloud: cloud_part(cloud) for cloud in cloud_packages()}
    schemes = {cloud: getattr(own, "SCHEME", None) for cloud, own in packages.items()}
    return {scheme: cloud for cloud, scheme in schemes.items() if scheme is not None}


def forms() -> list[str]:
    """How locations in object stores are written."""
    return [form_of(cloud) for cloud in clouds_by_scheme().values()]


def form_of(cloud: str) -> str:
    """How locations in a cloud's object store are written."""
    package = cloud_part(cloud)
    assert package is not None
    return str(package.FORM)
