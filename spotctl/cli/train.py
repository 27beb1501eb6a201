"""`spotctl train`: a trainer on this machine, without a market."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from agileml.core.events import Iteration
    from agileml.job import Listener


def train(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="The trainer: a Python file, module:Class, or an app (mf, mlr).")],
    engine: Annotated[
        str, typer.Option(help="Nodes are processes (local), or a model in virtual time (sim).")
    ] = "local",
    nodes: Annotated[str, typer.Option(help="Nodes at the start, reliable+transient.")] = "1+3",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same model to the last bit, whatever happens on the way.")
    ] = False,
    slack: Annotated[str, typer.Option(help="Clocks a worker may run ahead; asp for any number.")] = "0",
    stage: Annotated[str, typer.Option(help="1, 2 or 3 whatever the nodes; auto learns which is fastest.")] = "auto",
    chaos: Annotated[str, typer.Option(help="What is to befall the job; see above.")] = "",
    clocks: Annotated[int | None, typer.Option(help="End after so many; 100 if no end is given.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so many seconds.")] = None,
    minutes: Annotated[float | None, typer.Option(help="End after so many minutes.")] = None,
    loss: Annotated[float | None, typer.Option(help="End when the loss is down to this.")] = None,
    converged: Annotated[
        float | None, typer.Option(help="End when five clocks lower the loss by less than this share: 0.001.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the model, of what trainers draw, and of chaos.", min=0)] = 0,
    arg: Annotated[list[str] | None, typer.Option(help="Argument of the trainer, name=value. Repeatable.")] = None,
    partitions: Annotated[int, typer.Option(help="Parts into which the parameters are cut.", min=1)] = 8,
    checkpoint_every: Annotated[
        int, typer.Option(help="Clocks between checkpoints of reliable nodes; 0 for none.", min=0)
    ] = 0,
    heartbeat_timeout: Annotated[
        float, typer.Option(help="Seconds of silence after which a node is given up.", min=0.1)
    ] = 1.0,
    log: Annotated[Path | None, typer.Option(help="Iteration log: one JSON object a clock, one for the job.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the model (.npz).")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the run: time per clock and events (.png, .svg).")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Train a model on nodes of this machine that come, go and die as you say; no update is lost or counted twice.

    Chaos is a list of `at WHEN do WHAT`, separated by semicolons.
    WHEN: `at clock 20`, `at 30s`, `every 20s`, `every 5 clocks`.
    WHAT: `evict` or `kill`, and whom: 1, half, all, `1 reliable`; `join 2`; `kill controller`.
    `evict half warn 5s` says how long before; `prob 0.3` at the end has it happen only so often.

    Example: spotctl train mf --clocks 60 --chaos "at clock 20 evict half warn 5s; at clock 30 kill 1"

    Example: spotctl train trainer.py --engine sim --nodes 4+60 --arg rank=32 --converged 0.001 --log run.jsonl
    """
    from agileml.iteration_log import IterationLog, last_line_of
    from spotctl.analyses import train
    from spotctl.show import train_tables

    session: Session = context.obj
    ends = train.Ends(clocks, seconds, minutes, loss, converged)
    request = train.Request(
        file, arg or [], engine, nodes, ends, seed, partitions, deterministic, slack, stage, checkpoint_every,
        heartbeat_timeout, chaos,
    )  # fmt: skip
    for option, path, suffixes in (("--log", log, ()), ("--out", out, (".npz",)), ("--plot", plot, (".png", ".svg"))):
        train.check_destination(option, path, suffixes)
    run = train.prepared(request)
    history: list[Iteration] = []
    with ExitStack() as stack:
        listeners = [history.append, stack.enter_context(_watching(session))]
        written = stack.enter_context(IterationLog(log)) if log is not None else None
        if written is not None:
            listeners.append(written.write)
        trained = run(lambda iteration: _tell(listeners, iteration))
        ending = last_line_of(trained)
        if written is not None:
            written.end(ending)
    if out is not None:
        train.save_model(trained.model, out)
    if plot is not None:
        from spotctl.show import train_plots

        train_plots.draw(history, plot)
    if json_:
        session.answer_json(ending)
    else:
        session.out.print(train_tables.summary(history, ending, virtual=engine == "sim"))
    train.check_nothing_lost(trained.counters)


def _tell(listeners: Sequence[Listener], iteration: Iteration) -> None:
    for listener in listeners:
        listener(iteration)


@contextmanager
def _watching(session: Session) -> Iterator[Listener]:
    """What happens, and how far the run is, on a terminal."""
    if not session.err.is_terminal:
        yield lambda _: None
        return
    from rich.text import Text

    from spotctl.show import train_tables

    with session.err.status(Text("starting")) as status:

        def show(iteration: Iteration) -> None:
            for event in train_tables.events(iteration):
                session.err.print(Text(event))
            status.update(Text(train_tables.line(iteration)))

        yield show
