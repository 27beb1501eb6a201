"""The packages that some packages need, in the environment of a machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class KnownPackage:
    """A version of a package, and the requirements in its metadata."""

    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Closure:
    """Packages and everything that they need: versions that are known, and requirements on packages that are not."""

    known: Mapping[str, KnownPackage]
    unknown: Mapping[str, str]

    @property
    def pinned(self) -> tuple[str, ...]:
        """Requirements on all of them, the known ones in these versions. A local version is on no index."""
        known = (f"{name}=={package.version.partition('+')[0]}" for name, package in self.known.items())
        return tuple(sorted((*known, *self.unknown.values())))


def closure(names: Iterable[str], look_up: Callable[[str], KnownPackage | None], markers: Mapping[str, str]) -> Closure:
    """Follows the requirements of packages as far as they are known. Extras are not followed."""
    known: dict[str, KnownPackage] = {}
    unknown: dict[str, str] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in known or (requirement.marker is not None and not requirement.marker.evaluate(dict(markers))):
            continue
        package = look_up(name)
        if package is None:
            unknown.setdefault(name, f"{name}{requirement.specifier}")
            continue
        known[name] = package
        waiting += [Requirement(text) for text in package.requires]
    return Closure(known, unknown)
