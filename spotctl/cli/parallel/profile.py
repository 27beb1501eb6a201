"""`spotctl lab parallel profile`: measures the layers of a model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session


def profile(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="mlp, transformer, split-transformer, or FILE.py:FUNCTION.")],
    microbatch: Annotated[str, typer.Option(help="Microbatch sizes to measure.")] = "1,2,4",
    repeats: Annotated[int, typer.Option(help="Passes per layer; the median counts.")] = 20,
    together: Annotated[
        int, typer.Option(help="Processes that measure at the same time: as many as there will be nodes on a computer.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="File for the profile, to pass to spotctl lab parallel plan.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Measure forward and backward seconds and bytes of every layer on this machine.

    FUNCTION takes the number of samples in a microbatch and returns an agileml.pipeline.model.PipelineModel. `mlp`
    is built in. So are `transformer` and `split-transformer`, which need PyTorch; layers of the latter have two parts.

    Example: spotctl lab parallel profile mlp --microbatch 8,16 --out profile.json
    """
    from agileml.pipeline.measure.profiler import profiled, profiles_to_json
    from agileml.pipeline.model.user_model import model_factory
    from spotctl.cli.parallel.device_options import parse_sizes
    from spotctl.files.parallel_files import check_folder
    from spotctl.lab import parallel

    session: Session = context.obj
    sizes = parse_sizes(microbatch)
    check_folder(out)
    profiles = profiled(model, model_factory(model), sizes, repeats, together=together)
    content = profiles_to_json(model, profiles)
    if out:
        out.write_text(json.dumps(content, indent=1) + "\n")
    session.answer(json_, content, parallel.profile_table(profiles))
