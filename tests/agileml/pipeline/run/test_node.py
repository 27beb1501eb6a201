"""Pipelines against one process with a version history: equal bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Array, PipelineModel, Values, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.node import PipelineTask
from agileml.pipeline.run.stage_state import StageState, initial_state
from agileml.pipeline.tensor_parts import Awaiting
from tests.agileml.pipeline.oracle import same, small_model, trained
from tests.agileml.pipeline.run.elastic_schedules import FaultyPipeline

OPTIMIZERS = [Optimizer("sgd", 0.1), Optimizer("momentum", 0.05), Optimizer("adam", 0.01)]


def cuts(layers: int, pieces: int, first: int = 0) -> list[tuple[tuple[int, int], ...]]:
    """Every way to cut the layers."""
    if pieces == 1:
        return [((first, layers - 1),)]
    return [
        ((first, end), *rest)
        for end in range(first, layers - pieces + 1)
        for rest in cuts(layers, pieces - 1, end + 1)
    ]


def piped(
    model: PipelineModel,
    optimizer: Optimizer,
    scheme: str,
    layout: PipelineLayout,
    batches: int,
    *,
    every: int = 100,
    recompute: bool = False,
) -> tuple[dict[int, Weights], dict[int, float]]:
    nodes = len(layout.seats())
    settings = ElasticSettings(scheme, batches, {nodes: layout}, [1.0] * len(model.layers), every)
    result = FaultyPipeline(
        PipelineTask(model, optimizer, scheme, recompute), settings, nodes
    ).train()
    return result.weights, result.losses


def stage_version(layout: PipelineLayout, scheme: str) -> Callable[[int, int], int]:
    """The version of a layer for update t, by the table of schemes."""
    (spans,) = layout.pipelines
    p = len(spans)
    stage = {layer: s for s, (a, b) in enumerate(spans, 1) for layer in range(a, b + 1)}
    if scheme == "pipedream":
        return lambda layer, t: max(t - p + stage[layer], 0)
    return lambda _, t: max(t - p + 1, 0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize("recompute", [False, True])
def test_flushing_schemes_equal_one_process(optimizer: Optimizer, recompute: bool) -> None:
    """Some cuts of each depth, chunks and pipelines."""
    model = small_model()
    expected, losses = trained(model, optimizer, 2, 6, lambda _, t: t)
    for p, v in [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3)]:
        for spans in cuts(6, p * v)[:: 1 + len(cuts(6, p * v)) // 3]:
            for scheme in ["interleaved"] if v > 1 else ["gpipe", "flush"]:
                result = piped(
                    model,
                    optimizer,
                    scheme,
                    PipelineLayout((spans,), (6,), v),
                    2,
                    recompute=recompute,
                )
                assert same(result[0], expected)
                assert result[1] == losses


@pytest.mark.parametrize("scheme", ["gpipe", "flush", "2bw"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.kind)
def test_unequal_pipelines_equal_one_process(scheme: str, optimizer: Optimizer) -> None:
    model = small_model()
    layout = PipelineLayout((((0, 2), (3, 5)), ((0, 1), (2, 3), (4, 5)), ((0, 5),)), (3, 4, 2))
    late = 1 if scheme == "2bw" else 0
    expected = trained(model, optimizer, 3, 9, lambda _, t: max(t - late, 0))
    result = piped(model, optimizer, scheme, layout, 3)
    assert same(result[0], expected[0])
    assert result[1] == expected[1]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_double_buffering_equals_one_process_with_a_delay_of_one(
    optimizer: Optimizer, p: int
) -> None:
    model = small_model()
    layout = PipelineLayout((cuts(6, p)[0],), (4,))
    expected, _ = trained(model, optimizer, 4, 4, lambda _, t: max(t - 1, 0))
    assert same(piped(model, optimizer, "2bw", layout, 4)[0], expected)
    # Draining the pipeline after every second batch changes nothing.
    assert same(piped(model, optimizer, "2bw", layout, 4, every=2)[0], expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.kind)
@pytest.mark.parametrize("scheme", ["pipedream", "vertical-sync"])
def test_stashing_equals_one_process_with_a_version_history(
    scheme: str, optimizer: Optimizer
) -> None:
    model = small_model()
    for spans in [cuts(6, 1)[0], cuts(6, 2)[2], cuts(6, 3)[4], cuts(6, 4)[-1]]:
        layout = PipelineLayout((spans,), (1,))
        expected, _ = trained(model, optimizer, 9, 1, stage_version(layout, scheme))
        assert same(piped(model, optimizer, scheme, layout, 9)[0], expected)


@pytest.mark.parametrize("scheme", ["pipedream", "vertical-sync", "2bw"])
@pytest.mark.parametrize("recompute", [False, True])
def test_without_stashing_the_result_differs(
    scheme: str, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backward pass with the newest weights instead of those of its forward pass."""
    model, optimizer = small_model(), OPTIMIZERS[0]
    layout = PipelineLayout((cuts(6, 3)[4],), (3 if scheme == "2bw" else 1,))
    stashed = piped(model, optimizer, scheme, layout, 6, recompute=recompute)[0]
    late = (lambda _, t: max(t - 1, 0)) if scheme == "2bw" else stage_version(layout, scheme)
    expected, _ = trained(model, optimizer, 6, layout.batch, late)
    assert same(stashed, expected)
    right, real = StageState.weights, StageState.backward

    def newest(state: StageState, layer: int, _: int) -> Weights:
        return right(state, layer, state.layers[layer].updates)

    def with_the_newest(
        self: StageState, span: Sequence[int], microbatch: int, version: int, gradient: Array
    ) -> Awaiting[Values]:
        with monkeypatch.context() as patch:
            patch.setattr(StageState, "weights", newest)
            return (yield from real(self, span, microbatch, version, gradient))

    monkeypatch.setattr(StageState, "backward", with_the_newest)
    assert not same(piped(model, optimizer, scheme, layout, 6, recompute=recompute)[0], expected)


def test_gradients_of_a_layer_are_summed_as_they_come() -> None:
    """One sum of the same bits stands for all microbatches where no other node has earlier ones."""
    model, optimizer = small_model(), OPTIMIZERS[0]
    span = range(len(model.layers))
    states = {layer: initial_state(model, optimizer, layer) for layer in span}
    apart, summed = (
        StageState(model, optimizer, states),
        StageState(model, optimizer, states, summed={0}),
    )
    for state in (apart, summed):
        for microbatch in range(3):
            inputs, targets = model.data(microbatch)
            outputs = finished(state.forward(span, microbatch, 0, inputs))
            finished(state.backward(span, microbatch, 0, model.loss(outputs, targets)[1]))
    parts = [part for _, part in apart.parts(0)]
    total = tuple(a + b + c for a, b, c in zip(*parts, strict=True))
    ((last, gradients),) = summed.parts(0)
    assert last == 2
    assert same({0: gradients}, {0: total})
    assert len(summed.parts(1)) == 3


def finished(work: Awaiting[Values]) -> Values:
    """The result of a pass that needs no frames."""
    try:
        next(work)
    except StopIteration as end:
        result: Values = end.value
        return result
    raise AssertionError("it asked for a frame")
