"""The schemes: delay, bubble, weight versions and microbatches in flight of each."""

from agileml.errors import BadArgument

SCHEMES = ("gpipe", "flush", "interleaved", "pipedream", "vertical-sync", "2bw")
FLUSHING = ("gpipe", "flush", "interleaved")
STASHING = ("pipedream", "vertical-sync")
"""Update after every input, with one stashed version per input in flight."""


def delay(scheme: str, stages: int) -> int:
    """Updates that the oldest gradient misses."""
    if scheme in FLUSHING:
        return 0
    return 1 if scheme == "2bw" else stages - 1


def bubble(scheme: str, stages: int, microbatches: int, chunks: int = 1) -> float:
    """Time lost to filling and draining, relative to the ideal time of a batch."""
    return (stages - 1) / (chunks * microbatches) if scheme in FLUSHING else 0.0


def versions(scheme: str, stages: int, stage: int) -> int:
    """Weight versions that stage `stage` (from 1) holds."""
    if scheme in FLUSHING:
        return 1
    if scheme == "2bw":
        return 2
    return stages if scheme == "vertical-sync" else stages - stage + 1


def in_flight(scheme: str, stages: int, stage: int, microbatches: int, chunks: int = 1) -> int:
    """Microbatches (interleaved: chunks of them) whose stash stage `stage` (from 1) holds at its peak."""
    if scheme == "gpipe":
        return microbatches
    if scheme == "flush":
        return min(microbatches, stages - stage + 1)
    if scheme == "interleaved":
        return min(microbatches * chunks, 2 * (stages - stage) + (chunks - 1) * stages + 1)
    return stages - stage + 1


def check_scheme(scheme: str, stages: int, microbatches: int, chunks: int = 1) -> None:
    """Raises BadArgument for a shape that the scheme cannot run."""
    if scheme not in SCHEMES:
        raise BadArgument(f"scheme is {scheme!r}; choose from {', '.join(SCHEMES)}")
    if chunks > 1 and scheme != "interleaved":
        raise BadArgument(f"chunks is {chunks}: only the interleaved scheme runs several; set chunks to 1")
    if scheme == "interleaved" and microbatches % stages:
        raise BadArgument(
            f"microbatches is {microbatches}, not a multiple of {stages} stages: the interleaved scheme needs one"
        )
    if scheme == "2bw" and microbatches < stages:
        raise BadArgument(
            f"microbatches is {microbatches}: 2bw needs at least one per stage ({stages}):"
            " use a larger batch, smaller microbatches or fewer stages"
        )
