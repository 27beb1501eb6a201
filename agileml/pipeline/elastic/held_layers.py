"""The layers that each node holds, its own and copies of its neighbors', and the batch of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class HeldLayers:
    """By node and batch, the layers that the node holds as they were before that batch."""

    nodes: dict[str, dict[int, frozenset[int]]] = field(default_factory=dict)

    def add(self, node: str, batch: int, layers: Iterable[int]) -> None:
        states = self.nodes[node]
        states[batch] = states.get(batch, frozenset()) | frozenset(layers)

    def keep(self, batches: Iterable[int]) -> None:
        """All nodes drop the states of other batches."""
        kept = set(batches)
        self.nodes = {
            node: {batch: layers for batch, layers in states.items() if batch in kept}
            for node, states in self.nodes.items()
        }

    def at(self, batch: int) -> dict[str, frozenset[int]]:
        """The layers of each node."""
        return {node: states.get(batch, frozenset()) for node, states in self.nodes.items()}

    def holders(self, layer: int, batch: int) -> list[str]:
        return [node for node, layers in self.at(batch).items() if layer in layers]

    def newest(self, layers: int, count: int, latest: int) -> int:
        """The newest batch up to `latest` for which `count` nodes hold each layer; -1 if there is none."""
        batches = {batch for states in self.nodes.values() for batch in states if batch <= latest}
        safe = (batch for batch in batches if self._fewest(layers, batch) >= count)
        return max(safe, default=-1)

    def _fewest(self, layers: int, batch: int) -> int:
        return min(len(self.holders(layer, batch)) for layer in range(layers))


def neighbors_copies(seated: Sequence[str], held: HeldLayers, batch: int) -> dict[str, tuple[tuple[int, str], ...]]:
    """The layers that each node sends to the next one, so that no layer is at a single node."""
    return {
        node: tuple(
            (layer, seated[(i + 1) % len(seated)])
            for layer in sorted(held.nodes[node].get(batch, ()))
            if held.holders(layer, batch) == [node]
        )
        for i, node in enumerate(seated)
        if len(seated) > 1
    }
