"""`spotctl lab parallel train`: trains a model in pipeline stages on processes of this computer."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.lab.parallel import ModelArgument, parse_split
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest


def train(
    context: typer.Context,
    model: ModelArgument,
    plan: Annotated[
        str,
        typer.Option(
            help="A plan of `spotctl lab parallel plan --json`: a file, or the JSON, which jobs "
            "with `parallel:` find"
            " in $SPOTCTL_PARALLEL. The plan overrides --nodes, --split and --microbatches."
        ),
    ] = "",
    nodes: Annotated[int, typer.Option(help="Processes to start.")] = 2,
    batches: Annotated[int, typer.Option(help="Number of updates.")] = 20,
    microbatches: Annotated[
        int, typer.Option(help="Microbatches per update, over all pipelines.")
    ] = 8,
    microbatch: Annotated[int, typer.Option(help="Samples per microbatch.")] = 16,
    split: Annotated[
        str,
        typer.Option(
            help="How to split the model: stages=2,tensor=2. Keys: stages (at least this many), "
            "scheme (gpipe, flush,"
            " interleaved, 2bw, pipedream or vertical-sync), chunks per node of the interleaved "
            "scheme, tensor (nodes"
            " per stage, which share the parts of split layers equally), recompute (activations, "
            "in the backward pass)."
        ),
    ] = "",
    optimizer: Annotated[
        str, typer.Option(help="sgd, momentum or adam; a model with an optimizer keeps it.")
    ] = "adam",
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 0.003,
    faults: Annotated[
        str,
        typer.Option(
            "--faults",
            help="Faults by update: 'kill 5, warn 9, join 12'. Nodes are chosen by seat.",
        ),
    ] = "",
    engine: Annotated[
        str,
        typer.Option(help="local: processes. sim: one process, without faults, to check a model."),
    ] = "local",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Resume from this file, and keep the file current.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the trained weights (.npz).")] = None,
    json_: JsonOption = False,
) -> None:
    """Train in pipeline stages on local processes, which may be killed, warned and added during the
    run.

    If too few nodes are left, --out gets the newest complete copy of the weights, and the exit code
    is 1.

    With a flushing scheme or 2bw, the result is the same bit for bit, regardless of faults and the
    number of nodes.

    Example: spotctl lab parallel train mlp --nodes 4 --split stages=2 --faults "kill 5, warn 9,
    join 12"
    """
    from agileml.errors import JobFailed, check_whole
    from agileml.pipeline.builtin import model_factory
    from agileml.pipeline.model.base import UpdateRule
    from agileml.pipeline.optimizers import Optimizer
    from agileml.pipeline.run.local import (
        PipelineStopped,
        parse_faults,
        save_weights,
        train_local,
        train_simulated,
    )
    from agileml.pipeline.run.training import PipelinePlan, planned_training
    from spotctl.files.model_files import check_folder, load_plan
    from spotctl.lab import parallel

    session: Session = context.obj
    if engine not in ("local", "sim"):
        raise BadRequest(f"--engine {engine!r}: choose local or sim")
    if engine == "sim" and (faults or checkpoint):
        raise BadRequest(
            "--engine sim has no processes and no checkpoints: leave out --faults and --checkpoint"
        )

    check_whole("microbatch", microbatch, 1)
    for file in (out, checkpoint):
        check_folder(file)
    most = max(nodes, 8)
    asked = parse_split(split, ("stages", "scheme", "chunks", "tensor", "recompute"))
    if "stages" in asked:
        asked["least_stages"] = asked.pop("stages")
    steps = PipelinePlan(batches, microbatches, most_nodes=most, **asked)
    script = parse_faults(faults)
    rule: UpdateRule = Optimizer(optimizer, rate)

    if plan:
        _check_one_machine(os.environ)
        given = load_plan(plan)
        microbatch = given.microbatch
        nodes = given.devices
        built = model_factory(model)(microbatch)
        steps = planned_training(given, built, batches)
    else:
        built = model_factory(model)(microbatch)

    rule = built.optimizer or rule
    if engine == "sim":
        _use_one_thread()
        trained = train_simulated(built, rule, steps, nodes)
    else:
        try:
            trained = train_local(
                built,
                rule,
                steps,
                nodes,
                faults=script,
                checkpoint=checkpoint,
            )
        except PipelineStopped as error:
            if not out:
                raise
            save_weights(out, error.trained)
            raise JobFailed(
                f"{error}; the weights after update {error.update} are saved in {out}"
            ) from error

    if out:
        save_weights(out, trained)
    session.answer(
        json_, parallel.trained_json(trained, steps), parallel.trained_table(trained, steps)
    )


def _use_one_thread() -> None:
    """Computes as nodes do: PyTorch with more threads adds in another order, which changes the
    weights.
    """
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def _check_one_machine(variables: Mapping[str, str]) -> None:
    """Refuses a job on several nodes: each of them gets the plan, and would train the whole
    model."""
    if (nodes := variables.get("SPOTCTL_NODES", "1")) != "1":
        raise BadRequest(
            f"the job has {nodes} nodes, and spotctl lab parallel train uses one machine: write "
            "nodes: 1, or make"
            " it a training (kind: agileml, app: MODEL), which splits the model over machines"
        )
