"""`spotctl lab parallel`: splits a model over devices."""

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.parallel.device_options import parse_bandwidths, parse_bytes, parse_devices
from spotctl.cli.parallel.profile import profile
from spotctl.cli.parallel.simulate import simulate
from spotctl.cli.parallel.train import train
from spotctl.cli.parallel.transformer import transformer
from spotctl.cli.session import JsonOption, Session

app = typer.Typer(help="Split a model over several devices: profile, plan, simulate and train.", no_args_is_help=True)


@app.command()
def plan(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Profile of the model: JSON, or the graph text of a published one.")],
    devices: Annotated[str, typer.Option(help="Type and count: v100:16, or devices per server x servers: v100:4x4.")],
    bandwidth: Annotated[str, typer.Option(help="One rate per level: 10GB/s,10Gbit/s.")],
    batch: Annotated[int, typer.Option(help="Samples per update.")],
    memory: Annotated[str, typer.Option(help="Memory of a device: 16GiB.", show_default="unlimited")] = "",
    microbatch: Annotated[
        int | None, typer.Option(help="Only this microbatch size; for a graph text, its batch size.")
    ] = None,
    scheme: Annotated[
        str, typer.Option(help="auto, gpipe, flush, interleaved, pipedream, vertical-sync or 2bw.")
    ] = "auto",
    allow_delay: Annotated[
        int, typer.Option(help="With --scheme auto: how many updates a gradient may miss. 0 keeps the usual semantics.")
    ] = 0,
    stages: Annotated[int | None, typer.Option(help="Exactly this many pipeline stages.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Exactly this many pipelines.")] = None,
    chunks: Annotated[int | None, typer.Option(help="Chunks per device of the interleaved scheme.")] = None,
    tensor: Annotated[
        int | None,
        typer.Option(
            help="Devices of a server that share each layer; the layer's parts must be a multiple.", show_default="auto"
        ),
    ] = None,
    recompute: Annotated[
        bool | None, typer.Option("--recompute/--no-recompute", help="Recompute activations.", show_default="auto")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="Optimizer (its state takes memory): sgd, momentum or adam.")] = "adam",
    sync: Annotated[str, typer.Option(help="All-reduce over a ring, or over one shared bus: ring, shared.")] = "ring",
    overlap: Annotated[float, typer.Option(help="Part of synchronization hidden behind compute, 0 to 1.")] = 1.0,
    tensors: Annotated[int, typer.Option(help="Tensors that may cross a cut of a graph text.")] = 1,
    gavel: Annotated[
        Path | None,
        typer.Option(help="Also write updates per second, with an interval, into this Gavel problem."),
    ] = None,
    job: Annotated[str, typer.Option(help="With --gavel: the id of the job.")] = "",
    json_: JsonOption = False,
) -> None:
    """Choose how to split a model over devices before renting any. Needs no deep-learning framework.

    Compares schemes, pipeline stages, replicas, tensor parallelism, microbatch sizes and recomputation. The answer
    lists the stages, the expected speed, the memory of the fullest device, what limits the speed, and the alternatives
    that were rejected.

    Example: spotctl lab parallel plan vgg16.txt --microbatch 128 --devices v100:4x4 --bandwidth 10GB/s,10Gbit/s
    --memory 16GiB --batch 1024
    """
    from agileml.pipeline.plan.planner import plan as best_plan
    from agileml.pipeline.plan.requests import SplitRequest, Topology
    from agileml.pipeline.profile.model_profile import cost_rules
    from spotctl.files.parallel_files import load_profiles
    from spotctl.lab import parallel

    session: Session = context.obj
    kind, counts = parse_devices(devices)
    topology = Topology(counts, parse_bandwidths(bandwidth, len(counts)))
    rules = cost_rules(sync, overlap, parse_bytes(memory) if memory else float("inf"), optimizer)
    request = SplitRequest(topology, batch, rules, scheme, allow_delay, stages, replicas, chunks, recompute, tensor)
    profiles = load_profiles(file, microbatch, tensors)
    chosen = best_plan(profiles, request)
    if gavel:
        from spotctl.lab.gavel.problem_file import write_throughput

        write_throughput(gavel, job, kind, chosen, batch)
    if json_:
        session.answer_json(parallel.plan_json(chosen, kind))
        return
    session.out.print(parallel.plan_table(chosen, profiles))
    session.remark(*parallel.remarks(chosen, kind))


app.command()(profile)
app.command()(simulate)
app.command()(train)
app.command()(transformer)
