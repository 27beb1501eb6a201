"""Names that were probably meant when others were written, also of regions."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nsmallest

from pricing_data.known_clouds import cloud_names, markets_of
from pricing_data.market import api_region

_MIN_SIMILARITY = 0.6


def closest(
    written: str, known: Iterable[str], most: int = 1, alike: float = _MIN_SIMILARITY
) -> list[str]:
    """The known names that need the fewest corrections, best first; empty if none is similar.

    `difflib` alone prefers us-west-1 to us-east-1 for us-esat-1, because it does not know swapped
    letters.
    """
    every = list(known)
    near = get_close_matches(written, every, max(len(every), 1), alike)

    def distance(name: str) -> tuple[int, int]:
        # Of equally close names, the one that begins like the written one: first letters are rarely
        # wrong.
        pairs = enumerate(zip(written, name, strict=False))
        differing = (at for at, (letter, other) in pairs if letter != other)
        alike_from_the_start = next(differing, min(len(written), len(name)))
        return typing_errors(written, name), -alike_from_the_start

    return nsmallest(most, near, key=distance)


def typing_errors(written: str, meant: str) -> int:
    """The number of letters missing, added, replaced, or swapped with the next one."""
    before: list[int] = []
    row = list(range(len(meant) + 1))
    for i, letter in enumerate(written, 1):
        now = [i]
        for j, other in enumerate(meant, 1):
            left_out = row[j] + 1
            added = now[j - 1] + 1
            changed = row[j - 1] + (letter != other)
            fewest = min(left_out, added, changed)
            if i > 1 and j > 1 and letter == meant[j - 2] and written[i - 2] == other:
                fewest = min(fewest, before[j - 2] + 1)
            now.append(fewest)
        before = row
        row = now

    return row[-1]


def either(names: Sequence[str]) -> str:
    """Names as alternatives.

    >>> either(["aws", "gcp", "azure"])
    'aws, gcp or azure'
    """
    *others, last = names
    if others:
        return f"{', '.join(others)} or {last}"
    return last


_MIN_REGION_SIMILARITY = 0.8


def mistyped(region: str) -> str:
    """The known regions that an unknown one was probably meant to be, in words; empty if the name
    may be right.

    A name that differs in its number only is taken for a new region.
    """
    for cloud in cloud_names():
        known = markets_of(cloud).known_regions
        spelled = api_region(cloud, region)
        if spelled in known or _stem(spelled) in {_stem(name) for name in known}:
            return ""
    return similar(region, cloud_names())


def similar(region: str, clouds: Iterable[str]) -> str:
    """The known regions of these clouds with a similar name, in words; empty if there is none."""
    regions = (known for cloud in clouds for known in markets_of(cloud).known_regions)
    every = sorted(regions)
    return " or ".join(closest(region.lower(), every, 2, _MIN_REGION_SIMILARITY))


def _stem(region: str) -> str:
    return region.rstrip("0123456789")
