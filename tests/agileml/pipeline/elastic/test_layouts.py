"""How the nodes that there are share pipelines and layers."""

from __future__ import annotations

import pytest

from agileml.pipeline.elastic.layouts import LayoutRules, layouts, layouts_of_pieces
from agileml.pipeline.tensor_parts import pieces
from tests.agileml.pipeline.oracle import split_model


@pytest.mark.parametrize("scheme", ["flush", "interleaved", "2bw", "pipedream"])
def test_layouts_use_all_nodes_where_that_is_faster(scheme: str) -> None:
    chunks = 2 if scheme == "interleaved" else 1
    batch = 1 if scheme == "pipedream" else 12
    options = layouts([1.0] * 8, LayoutRules(scheme, batch, chunks), 6)
    assert options.keys() == set(range(1, 7))
    for nodes, layout in options.items():
        assert len(layout.seats()) <= nodes
        assert layout.batch == batch
    if scheme == "flush":
        assert len(options[6].seats()) == 6


def test_nodes_that_are_left_share_a_layer_by_a_divisor() -> None:
    layouts = layouts_of_pieces(
        [1.0] * 5, pieces(split_model(4).layers), LayoutRules("flush", 4), 6, 4
    )
    assert {nodes: layout.tensor for nodes, layout in layouts.items()} == {
        1: 1,
        2: 2,
        3: 2,
        4: 4,
        5: 4,
        6: 4,
    }
