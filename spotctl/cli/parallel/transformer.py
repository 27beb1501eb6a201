"""`spotctl lab parallel transformer`: size, training time and layout of a transformer from its shape alone."""

from typing import Annotated

import typer

from spotctl.cli.parallel.device_options import parse_bytes
from spotctl.cli.session import JsonOption, Session


def transformer(
    context: typer.Context,
    layers: Annotated[int, typer.Option(help="Transformer blocks.")],
    hidden: Annotated[int, typer.Option(help="Width of a block.")],
    vocabulary: Annotated[int, typer.Option(help="Tokens in the vocabulary.")],
    sequence: Annotated[int, typer.Option(help="Tokens in a sample.")],
    devices: Annotated[int, typer.Option(help="Devices in total.")],
    server: Annotated[int, typer.Option(help="Devices per server.")] = 8,
    memory: Annotated[str, typer.Option(help="Memory of a device.")] = "80GiB",
    bytes_per_parameter: Annotated[
        float, typer.Option(help="Weights, gradients and optimizer state; fp32 with Adam takes 16.")
    ] = 16.0,
    tflops: Annotated[float, typer.Option(help="TFLOP/s that a device reaches.")] = 140.0,
    tokens: Annotated[float, typer.Option(help="Tokens to train on.")] = 300e9,
    microbatch: Annotated[int, typer.Option(help="Samples per microbatch.")] = 1,
    chunks: Annotated[int, typer.Option(help="Chunks per device of the interleaved scheme.")] = 1,
    scatter: Annotated[bool, typer.Option("--scatter", help="Tensor-parallel devices share each transfer.")] = False,
    json_: JsonOption = False,
) -> None:
    """Estimate parameters, training days, layout and traffic of a transformer from its shape, without a profile.

    Layout rule: tensor parallelism within a server until the state fits; then pipeline stages; then data parallelism.

    Example: spotctl lab parallel transformer --layers 96 --hidden 12288 --vocabulary 51200 --sequence 2048
    --devices 1536 --tflops 141
    """
    from agileml.checks import check_number, check_whole
    from agileml.pipeline.profile.transformer import TransformerShape, layout_by_rule, traffic
    from spotctl.lab import parallel

    session: Session = context.obj
    for name, value in (("devices", devices), ("server", server), ("microbatch", microbatch), ("chunks", chunks)):
        check_whole(name, value, 1)
    for name, number in (("bytes_per_parameter", bytes_per_parameter), ("tflops", tflops), ("tokens", tokens)):
        check_number(name, number, 0, above=True)
    shape = TransformerShape(layers, hidden, vocabulary, sequence)
    layout = layout_by_rule(shape, devices, server, parse_bytes(memory), bytes_per_parameter)
    answer = {
        "parameters": shape.parameters,  #: number of parameters
        #: floating-point operations per sample, forward and backward
        "operations_per_sample": shape.batch_operations(1),
        "training_days": shape.training_days(tokens, devices, tflops * 1e12),  #: days of training
        "tensor": layout.tensor,  #: devices that share each layer
        "stages": layout.stages,  #: pipeline stages
        "replicas": layout.pipelines,  #: pipelines that train in parallel
        #: tensor elements that a device sends -> agileml.pipeline.profile.transformer:TransformerTraffic
        "elements": traffic(shape, layout, microbatch, chunks, scatter=scatter).to_json(),
    }
    session.answer(json_, answer, parallel.transformer_table(answer))
