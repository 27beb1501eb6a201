"""`spotctl lab parallel`: one model over several devices: profile, plan, simulate, and estimate by
shape.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from pricing_data.units import SECOND, parse_duration
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="mlp, transformer, split-transformer, or FILE.py:FUNCTION.", show_default=False
    ),
]

_UNITS = {
    "": 1,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "t": 1e12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SIZE = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kmgt]?i?)b", re.IGNORECASE)
_BANDWIDTH = re.compile(r"([0-9.]+)\s*([kmgt]?i?)(b|bit)/s", re.IGNORECASE)
_STATE_BYTES = 16.0
"""Bytes per parameter: weights, gradients and Adam's state, in fp32 or in mixed precision."""

_FLAGS = {"true": True, "false": False}


def plan(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(help="Profile of the model: JSON, or the graph text of a published one."),
    ],
    devices: Annotated[
        str,
        typer.Option(help="Type and count: v100:16, or devices per server x servers: v100:4x4."),
    ],
    bandwidth: Annotated[str, typer.Option(help="One rate per level: 10GB/s,10Gbit/s.")],
    batch: Annotated[int, typer.Option(help="Samples per update.")],
    memory: Annotated[
        str, typer.Option(help="Memory of a device: 16GiB.", show_default="unlimited")
    ] = "",
    microbatch: Annotated[
        int | None,
        typer.Option(help="Only this microbatch size; for a graph text, its batch size."),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            help="Leave less to choose: stages=4,tensor=2. The keys are those of a job's "
            "`parallel`: scheme, stages, replicas, chunks, tensor, recompute, allow_delay."
        ),
    ] = "",
    optimizer: Annotated[
        str, typer.Option(help="Optimizer (its state takes memory): sgd, momentum or adam.")
    ] = "adam",
    sync: Annotated[
        str, typer.Option(help="All-reduce over a ring, or over one shared bus: ring, shared.")
    ] = "ring",
    overlap: Annotated[
        float, typer.Option(help="Part of synchronization hidden behind compute, 0 to 1.")
    ] = 1.0,
    gavel: Annotated[
        Path | None,
        typer.Option(
            help="Also write updates per second, with an interval, into this Gavel problem."
        ),
    ] = None,
    job: Annotated[str, typer.Option(help="With --gavel: the id of the job.")] = "",
    json_: JsonOption = False,
) -> None:
    """Choose how to split a model over devices before renting any. Needs no deep-learning
    framework.

    Compares schemes, pipeline stages, replicas, tensor parallelism, microbatch sizes and
    recomputation. The answer lists the stages, the expected speed, the memory of the fullest
    device, what limits the speed, and the alternatives that were rejected. Schemes: auto, gpipe,
    flush, interleaved, pipedream, vertical-sync, 2bw; auto delays no gradient, unless allow_delay
    says how many updates it may miss.

    Example: spotctl lab parallel plan vgg16.txt --microbatch 128 --devices v100:4x4 --bandwidth
    10GB/s,10Gbit/s --memory 16GiB --batch 1024
    """
    from agileml.pipeline.plan.parallel_plan import SplitRequest, Topology
    from agileml.pipeline.plan.planner import plan as best_plan
    from agileml.pipeline.profile.model_profile import cost_rules
    from spotctl.files.model_files import load_profiles
    from spotctl.lab import parallel

    session: Session = context.obj
    # `v100:4x4`: the type, and devices per server, servers, and so on; `v100:16` is one level.
    named, _, sizes = devices.rpartition(":")
    parts = sizes.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadRequest(
            f"--devices {devices!r} is not TYPE:COUNT or TYPE:PER_SERVERxSERVERS, e.g. v100:4x4"
        )
    kind, counts = named or "device", tuple(int(part) for part in parts)

    topology = Topology(counts, parse_bandwidths(bandwidth, len(counts)))
    rules = cost_rules(sync, overlap, parse_bytes(memory) if memory else float("inf"), optimizer)
    keys = ("scheme", "stages", "replicas", "chunks", "tensor", "recompute", "allow_delay")
    given = parse_split(split, keys)
    if "replicas" in given:
        given["pipelines"] = given.pop("replicas")
    request = SplitRequest(topology, batch, rules, **given)
    profiles = load_profiles(file, microbatch)
    chosen = best_plan(profiles, request)

    if gavel:
        from spotctl.lab.gavel.problem_file import write_throughput

        write_throughput(gavel, job, kind, chosen, batch)

    if json_:
        session.answer_json(parallel.plan_json(chosen, kind))
        return

    session.out.print(parallel.plan_table(chosen, profiles))
    session.remark(
        f"{chosen.model} on {chosen.devices} x {kind}; --json writes the plan for spotctl lab "
        "parallel simulate"
    )


def profile(
    context: typer.Context,
    model: ModelArgument,
    microbatch: Annotated[str, typer.Option(help="Microbatch sizes to measure.")] = "1,2,4",
    repeats: Annotated[int, typer.Option(help="Passes per layer; the median counts.")] = 20,
    together: Annotated[
        int,
        typer.Option(
            help="Processes that measure at the same time: as many as there will be nodes on a "
            "computer."
        ),
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the profile, to pass to spotctl lab parallel plan."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Measure forward and backward seconds and bytes of every layer on this machine.

    FUNCTION takes the number of samples in a microbatch and returns an
    agileml.pipeline.model.PipelineModel. `mlp` is built in. So are `transformer` and
    `split-transformer`, which need PyTorch; layers of the latter have two parts.

    Example: spotctl lab parallel profile mlp --microbatch 8,16 --out profile.json
    """
    from agileml.pipeline.builtin import model_factory
    from spotctl.files.model_files import check_folder
    from spotctl.lab import parallel
    from spotctl.lab.profiler import profiled, profiles_to_json

    session: Session = context.obj

    parts = [part.strip() for part in microbatch.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadRequest(f"--microbatch {microbatch!r} is not a list of sizes such as 1,2,4")
    sizes = [int(part) for part in parts]

    check_folder(out)
    profiles = profiled(model, model_factory(model), sizes, repeats, together=together)
    content = profiles_to_json(model, profiles)
    if out:
        out.write_text(json.dumps(content, indent=1) + "\n")
    session.answer(json_, content, parallel.profile_table(profiles))


def simulate(
    context: typer.Context,
    plan: Annotated[
        Path, typer.Argument(help="A plan that `spotctl lab parallel plan --json` wrote.")
    ],
    batches: Annotated[int, typer.Option(help="Batches to simulate.")] = 6,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Write a timeline: FILE.html for a browser, FILE.json for chrome://tracing or "
            "Perfetto."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Also replay the plan on a recorded fleet: CSV with `time,add,NAMES` and "
            "`time,remove,NAMES`."
        ),
    ] = None,
    warning: Annotated[
        str,
        typer.Option(
            help="With --trace: how long before leaving a machine is warned; 0 for no warning."
        ),
    ] = "2m",
    json_: JsonOption = False,
) -> None:
    """Simulate a plan operation by operation: devices, links, and what each stage holds.

    The plan's own speed is a formula; the simulation plays every forward pass, backward pass,
    transfer and update. If stages have different numbers of replicas, the simulation also finds how
    many inputs must be in flight to keep all stages busy.

    Example: spotctl lab parallel simulate plan.json --timeline timeline.html

    With --trace, machines come and go as recorded. The trace may also be JSON with the number of
    machines at each tick, as `spotctl lab backtest deadline` reads it.

    Example: spotctl lab parallel simulate plan.json --trace fleet.csv --warning 30s
    """
    from agileml.errors import check_whole
    from agileml.pipeline.plan.parallel_plan import simulate as play
    from agileml.pipeline.plan.planner import summary
    from agileml.pipeline.schedule.simulator import timeline_page, trace_json
    from spotctl.files.model_files import load_plan
    from spotctl.lab import parallel
    from spotctl.lab.simulate_fleet import simulate_fleet

    session: Session = context.obj
    check_whole("batches", batches, 1, 1000)
    if timeline and timeline.suffix not in (".html", ".json"):
        raise BadRequest(f"--timeline {timeline}: the name must end in .html or .json")

    given = load_plan(str(plan))
    fleet = None
    if trace:
        fleet = simulate_fleet(
            given, parallel.read_fleet(trace), parse_duration(warning, zero=True) / SECOND
        )

    played = play(given, batches)
    if timeline:
        page = timeline_page(played.run, f"{given.model}: {summary(given)}")
        timeline.write_text(page if timeline.suffix == ".html" else trace_json(played.run))

    session.answer(
        json_,
        parallel.played_json(given, played, fleet),
        parallel.played_table(given, played, fleet),
    )


def transformer(
    context: typer.Context,
    layers: Annotated[int, typer.Option(help="Transformer blocks.")],
    hidden: Annotated[int, typer.Option(help="Width of a block.")],
    vocabulary: Annotated[int, typer.Option(help="Tokens in the vocabulary.")],
    sequence: Annotated[int, typer.Option(help="Tokens in a sample.")],
    devices: Annotated[int, typer.Option(help="Devices in total.")],
    server: Annotated[int, typer.Option(help="Devices per server.")] = 8,
    memory: Annotated[str, typer.Option(help="Memory of a device.")] = "80GiB",
    tflops: Annotated[float, typer.Option(help="TFLOP/s that a device reaches.")] = 140.0,
    tokens: Annotated[float, typer.Option(help="Tokens to train on.")] = 300e9,
    json_: JsonOption = False,
) -> None:
    """Estimate parameters, training days, layout and traffic of a transformer from its shape,
    without a profile.

    Layout rule: tensor parallelism within a server until the state fits; then pipeline stages; then
    data parallelism.

    Example: spotctl lab parallel transformer --layers 96 --hidden 12288 --vocabulary 51200
    --sequence 2048 --devices 1536 --tflops 141
    """
    from agileml.errors import check_number, check_whole
    from spotctl.lab import parallel
    from spotctl.lab.transformer import TransformerShape, layout_by_rule, traffic
    from spotctl.show.columns import as_json

    session: Session = context.obj
    for name, value in (("devices", devices), ("server", server)):
        check_whole(name, value, 1)
    for name, number in (("tflops", tflops), ("tokens", tokens)):
        check_number(name, number, 0, above=True)
    shape = TransformerShape(layers, hidden, vocabulary, sequence)
    layout = layout_by_rule(shape, devices, server, parse_bytes(memory), _STATE_BYTES)
    figures = {
        "parameters": shape.parameters,
        "operations_per_sample": shape.batch_operations(1),
        "training_days": shape.training_days(tokens, devices, tflops * 1e12),
        "tensor": layout.tensor,
        "stages": layout.stages,
        "replicas": layout.pipelines,
        "elements": traffic(shape, layout, 1),
    }

    answer = as_json(parallel.TRANSFORMER, figures)
    session.answer(json_, answer, parallel.transformer_table(answer))


def parse_split(text: str, keys: Collection[str]) -> dict[str, Any]:
    """`stages=4,scheme=flush`: the values of some of these keys; those that are not given are left
    to others.
    """
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if key not in keys or not equals or key in values:
            raise BadRequest(
                f"--split {text!r}: {part!r} is not KEY=VALUE with one of {', '.join(keys)}, each "
                "once"
            )
        values[key] = value
        if key == "recompute":
            if value not in _FLAGS:
                raise BadRequest(f"--split recompute={value}: write true or false")
            values[key] = _FLAGS[value]
        elif key != "scheme":
            try:
                values[key] = int(value)
            except ValueError:
                raise BadRequest(
                    f"--split {key}={value}: {value!r} is not a whole number"
                ) from None

    return values


def parse_bandwidths(text: str, levels: int) -> tuple[float, ...]:
    """`10GB/s,10Gbit/s`: bytes per second within a server, between servers, and so on."""
    matches = [_BANDWIDTH.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise BadRequest(f"--bandwidth {text!r} is not a list of rates such as 10GB/s,10Gbit/s")

    rates = tuple(
        _amount(match[1], match[2], text) / (8 if match[3].lower() == "bit" else 1)
        for match in matches
        if match is not None
    )

    if len(rates) != levels:
        raise BadRequest(
            f"--bandwidth {text!r} has {len(rates)} rates for {levels} levels of devices: give one "
            "each"
        )
    return rates


def parse_bytes(text: str) -> float:
    """A number of bytes, written as `16GiB` or `500MB`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BadRequest(f"--memory {text!r} is not a size such as 16GiB")
    return _amount(match[1], match[2], text)


def _amount(number: str, unit: str, text: str) -> float:
    try:
        value = float(number) * _UNITS[unit.lower()]
    except (ValueError, KeyError):
        raise BadRequest(f"{text!r} is not a number with a unit such as 16GiB or 10GB/s") from None
    if not 0 < value < float("inf"):
        raise BadRequest(f"{text!r} must be above 0")
    return value
