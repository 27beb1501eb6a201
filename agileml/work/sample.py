"""The loss sample: how many of the first items of each shard belong to it."""

from collections.abc import Sequence


def sampled_items(lengths: Sequence[int], items: int) -> list[int]:
    """By shard, the number of its items in a sample of about this size.

    With more shards than items, only that many shards, evenly spread, have an item in the sample.
    """
    count = len(lengths)
    if not items:
        return [0] * count
    if count <= items:
        return [min(-(-items // count), length) for length in lengths]
    chosen = {number * count // items for number in range(items)}
    return [min(1, length) if number in chosen else 0 for number, length in enumerate(lengths)]
