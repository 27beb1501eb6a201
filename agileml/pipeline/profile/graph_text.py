"""Reads the text in which measured operator graphs have been published, and cuts the graph into
layers.

Nodes: `node3 -- ReLU -- forward_compute_time=1.2, backward_compute_time=0.8, activation_size=64.0,
parameter_size=0.0` with milliseconds and bytes, and edges: `node3 -- node4`. A cut is a place that
a limited number of tensors cross.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agileml.pipeline.profile.model_profile import BadProfile, LayerCost, ModelProfile

_NODE = re.compile(r"(?P<name>\S+) -- (?P<what>.*) -- (?P<figures>forward_compute_time=.*)")
_EDGE = re.compile(r"(\S+) -- (\S+)")
_FIGURES = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_MILLISECONDS = 1e-3


@dataclass(frozen=True)
class GraphNode:
    """An operator with its costs; inputs of the model cost nothing, since every stage reads its
    own.
    """

    name: str
    what: str
    forward_seconds: float
    backward_seconds: float
    output_bytes: float
    weight_bytes: float
    inputs: list[str] = field(default_factory=list)

    @property
    def is_input(self) -> bool:
        return self.what.startswith("Input")

    @property
    def costs(self) -> bool:
        """Whether a stage of this node alone would have anything to do."""
        return self.forward_seconds + self.backward_seconds + self.weight_bytes > 0


def read_graph(text: str, *, model: str, microbatch: int, crossing: int = 1) -> ModelProfile:
    """The layers of a published profile. At most `crossing` tensors pass from one layer to the
    next.
    """
    nodes: dict[str, GraphNode] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        matched = _NODE.fullmatch(line.strip())
        if matched:
            node = _node(matched["name"], matched["what"], matched["figures"], number)
            if nodes.setdefault(node.name, node) is not node:
                raise BadProfile(
                    f"line {number}: {node.name} is defined twice: keep one of the lines"
                )
        elif matched := _EDGE.fullmatch(line.strip()):
            edges.append((number, matched[1], matched[2]))
        elif line.strip():
            raise BadProfile(
                f"line {number}: {line.strip()[:60]!r} is neither a node nor an edge of a profile "
                "graph"
            )

    if not nodes:
        raise BadProfile(
            "has no nodes: expected lines such as 'node1 -- Linear -- forward_compute_time=...'"
        )

    for number, source, target in edges:
        for name in (source, target):
            if name not in nodes:
                raise BadProfile(
                    f"line {number}: edge to unknown {name}: add its node or remove the edge"
                )
        nodes[target].inputs.append(source)

    order = _order(nodes)
    input_bytes = sum(node.output_bytes for node in nodes.values() if node.is_input)
    return ModelProfile(model, microbatch, _layers(order, nodes, crossing), input_bytes)


def _node(name: str, what: str, figures: str, number: int) -> GraphNode:
    given = dict(part.split("=", 1) for part in figures.split(", ") if "=" in part)
    values = []
    for key in _FIGURES:
        # A node with several outputs lists their sizes.
        parts = given.get(key, "").strip("[]").split(";")
        try:
            values.append(sum(float(part) for part in parts))
        except ValueError:
            raise BadProfile(
                f"line {number}: {key} of {name} is {given.get(key)!r}; it must be a number"
            ) from None

    if what.startswith("Input"):
        values[:2] = [0.0, 0.0]
    forward, backward, output, weights = values
    return GraphNode(name, what, forward * _MILLISECONDS, backward * _MILLISECONDS, output, weights)


def _order(nodes: Mapping[str, GraphNode]) -> list[str]:
    """Depth first from the outputs, so that a node comes right before the first node that needs
    it."""
    order: list[str] = []
    state: dict[str, int] = {}
    used = {source for node in nodes.values() for source in node.inputs}
    stack = [(name, False) for name in sorted(nodes.keys() - used, key=_natural, reverse=True)] or [
        (next(iter(nodes)), False)
    ]

    while stack:
        name, finished = stack.pop()
        if finished:
            state[name] = 2
            order.append(name)
        elif state.get(name) == 1:
            raise BadProfile(f"{name} depends on itself: a model graph has no cycles")
        elif name not in state:
            state[name] = 1
            stack.append((name, True))
            waiting = sorted(
                (source for source in nodes[name].inputs if state.get(source) != 2),
                key=_natural,
                reverse=True,
            )
            stack += [(source, False) for source in waiting]

    if len(order) < len(nodes):
        raise BadProfile("every node leads into a cycle: a model graph has an output and no cycles")
    return order


def _natural(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return (int(digits) if digits else 0, name)


def _layers(
    order: Sequence[str], nodes: Mapping[str, GraphNode], crossing: int
) -> tuple[LayerCost, ...]:
    last_use = {name: i for i, name in enumerate(order)}
    for i, name in enumerate(order):
        for source in nodes[name].inputs:
            last_use[source] = max(last_use[source], i)

    layers: list[LayerCost] = []
    piece: list[GraphNode] = []
    live: list[GraphNode] = []
    for i, name in enumerate(order):
        piece.append(nodes[name])
        live = [node for node in [*live, nodes[name]] if last_use[node.name] > i]
        # An input of the model or an empty tensor needs no link.
        sent = [node for node in live if not node.is_input and node.output_bytes > 0]
        end = i == len(order) - 1
        if end or (1 <= len(sent) <= crossing and any(node.costs for node in piece)):
            worked = [node for node in piece if not node.is_input] or list(piece)
            first = worked[0].name
            title = f"{first}..{worked[-1].name}" if len(worked) > 1 else first
            forward = sum(node.forward_seconds for node in piece)
            backward = sum(node.backward_seconds for node in piece)
            output = nodes[name].output_bytes if end else sum(node.output_bytes for node in sent)
            stash = sum(node.output_bytes for node in piece if not node.is_input)
            weights = sum(node.weight_bytes for node in piece)
            layers.append(LayerCost(title, forward, backward, output, stash, weights))
            piece = []

    return tuple(layers)
