"""Graph texts: layers between cuts, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.pipeline.profile.graph_text import read_graph
from agileml.pipeline.profile.model_profile import BadProfile, ModelProfile


def node(number: int, what: str, size: str = "8.0", weights: float = 0.0) -> str:
    figures = (
        f"forward_compute_time=1.0, backward_compute_time=2.0, activation_size={size}, "
        f"parameter_size={weights}"
    )
    return f"node{number} -- {what} -- {figures}"


def read(*lines: str, crossing: int = 1) -> ModelProfile:
    return read_graph("\n".join(lines), model="m", microbatch=1, crossing=crossing)


def test_a_branch_is_one_layer() -> None:
    """node2 feeds node3 and node4, whose sum is node5: two tensors cross until then."""
    lines = [node(n, "Linear") for n in (5, 4, 3, 2)] + [
        node(1, "Input"),
        "\tnode1 -- node2",
        "\tnode2 -- node3",
    ]
    lines += [
        "\tnode3 -- node4",
        "\tnode2 -- node5",
        "\tnode4 -- node5",
        node(6, "Linear"),
        "\tnode5 -- node6",
    ]
    profile = read(*lines)
    assert [layer.name for layer in profile.layers] == ["node2", "node3..node5", "node6"]
    assert [layer.seconds for layer in profile.layers] == pytest.approx([0.003, 0.009, 0.003])
    assert (profile.input_bytes, profile.layers[1].stash_bytes) == (8.0, 24.0)
    assert len(read(*lines, crossing=2).layers) == 5
    assert read(*lines, crossing=2).layers[1].output_bytes == 16.0


def test_inputs_cost_no_time_and_several_outputs_are_added() -> None:
    profile = read(node(1, "Input"), node(2, "LSTM", "[4.0; 2.0]"), "node1 -- node2")
    assert [layer.seconds for layer in profile.layers] == pytest.approx([0.003])
    assert profile.layers[0].output_bytes == 6.0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["nonsense"], "line 1: 'nonsense' is neither a node nor an edge"),
        ([""], "has no nodes"),
        ([node(1, "Linear"), "node1 -- node2"], "line 2: edge to unknown node2"),
        ([node(1, "Linear"), node(1, "Linear")], "line 2: node1 is defined twice"),
        ([node(1, "Linear", "big")], "line 1: activation_size of node1 is 'big'"),
        ([node(1, "Linear", "nan")], "layer 'node1': output_bytes is nan"),
        (
            [node(1, "L"), node(2, "L"), "node1 -- node2", "node2 -- node1"],
            "node1 depends on itself",
        ),
        ([node(1, "Linear", "-1")], "layer 'node1': output_bytes is -1.0"),
    ],
)
def test_refused(lines: list[str], message: str) -> None:
    with pytest.raises(BadProfile, match=message):
        read(*lines)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("vgg16", 30),
        ("alexnet", 15),
        ("resnet50", 30),
        ("gnmt", 5),
        ("densenet121", 5),
        ("inception_v3", 15),
    ],
)
def test_measured_networks(shared_data: Path, name: str, least: int) -> None:
    text = (shared_data / "pipedream_profiles" / f"{name}.txt").read_text()
    profile = read_graph(text, model=name, microbatch=128)
    assert len(profile.layers) >= least
    assert profile.weight_bytes > 1e6
    assert sum(layer.output_bytes > 0 for layer in profile.layers) == len(profile.layers)
