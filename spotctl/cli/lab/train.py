"""`spotctl lab train`: trains on this computer, without a market."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.callbacks import unheard
from spotctl.home.errors import BadRequest, Interrupted, require_plots

if TYPE_CHECKING:
    from agileml.core.events import Iteration
    from agileml.job import Listener, Trained
    from spotctl.lab.train.training import Request


def train(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            help="Trainer: FILE.py, FILE.py:NAME, module:Class, or a built-in app (mf, mlr, lda)."
        ),
    ],
    engine: Annotated[
        str,
        typer.Option(
            help="local: nodes are processes. sim: simulated in virtual time. attach: nodes join "
            "from other machines. ray: nodes run on a Ray cluster."
        ),
    ] = "local",
    nodes: Annotated[str, typer.Option(help="Initial nodes: reliable+transient.")] = "1+3",
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="Produce the same model, bit for bit, regardless of faults."
        ),
    ] = False,
    slack: Annotated[
        str, typer.Option(help="Clocks that a worker may run ahead; asp for no limit.")
    ] = "0",
    stage: Annotated[
        str, typer.Option(help="AgileML stage: 1, 2 or 3; auto learns which is fastest.")
    ] = "auto",
    chaos: Annotated[
        str, typer.Option(help="Faults to inject, for example 'at clock 20 evict half'.")
    ] = "",
    stragglers: Annotated[
        str,
        typer.Option(
            help="How to handle slow machines: reassign (slow workers lend work), "
            "backup-workers=auto (clocks end"
            " without the slowest while that pays), balance (partitions leave slow servers)."
        ),
    ] = "",
    wire: Annotated[
        str | None,
        typer.Option(
            help="Precision of parameters and updates on the network: bf16 or fp16 (half the "
            "bytes), or fp32. Default: the trainer's."
        ),
    ] = None,
    clocks: Annotated[
        int | None,
        typer.Option(help="Stop after N clocks (default: 100 if there is no other limit)."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after N seconds.")] = None,
    loss: Annotated[
        float | None, typer.Option(help="Stop when the loss reaches this value.")
    ] = None,
    converged: Annotated[
        float | None,
        typer.Option(
            help="Stop when five clocks improve the loss by less than this fraction: 0.001."
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", help="Random seed for model, trainer and fault injection.", min=0
        ),
    ] = 0,
    arg: Annotated[
        list[str] | None, typer.Option(help="Trainer argument as name=value. Repeatable.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of partitions of the parameters; by default 1 to 8, by their size.",
            min=1,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Clocks between checkpoints, which restore a lost reliable node; 0 for none.",
            min=0,
        ),
    ] = 1,
    timeouts: Annotated[
        str,
        typer.Option(
            help="Times in seconds: heartbeat=1,hang=30,startup=300. A node without a heartbeat "
            "for so long has failed;"
            " one whose step takes so long, and five times as long as usual, is replaced; and so "
            "long a node may take"
            " to load the trainer and finish its first step, or with --engine attach, all nodes to "
            "join."
        ),
    ] = "",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="With --engine attach: where nodes join. With --engine ray: the cluster's "
            "address; auto on one of its"
            " machines. Default: RAY_ADDRESS, or a cluster on this computer that ends with the "
            "training.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --engine attach: file (mode 600) with the job's secret."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --engine attach or ray: folder for the job's state. If this command is "
            "killed, run it again to resume.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Iteration log: a JSON object per clock, and one for the job."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="Do not train: recompute the model of an earlier --deterministic run from its "
            "iteration log, with the"
            " same trainer, --arg, --seed and --partitions, and compare the two.",
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="plain",
            help="After the training, train a TorchModule with plain PyTorch in this process, on "
            "the same batches: --plot draws both losses, and --json has them.",
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Output file for the model (.npz).")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot of the run: time per clock, events and losses (.png, .svg)."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Train on nodes of this computer, or on nodes that join from other machines. No update is lost
    or applied twice.

    --chaos is a list of faults, separated by semicolons. Each has a time and an action. Times: `at
    clock 20`, `at 30s`, `every 20s`, `every 5 clocks`. Actions: `evict` or `kill` with a target (1,
    half, all, `1 reliable`); `join 2`; `kill controller`. `evict half warn 5s` sets the warning
    time; `prob 0.3` at the end sets the probability. Faults can also slow machines down: `slow
    worker 1% by 200%`, `disrupt 20% every 20s by 2x`, `power law 7`, `uneven 75/25`, `slow server 1
    to 10%` (--engine sim), `replay FILE` with recorded times of workers; see --stragglers.

    Ctrl-C ends the training with the last stable model, which --out saves. So does a training whose
    nodes fail again and again, with exit code 1.

    Example: spotctl lab train mf --clocks 60 --chaos "at clock 20 evict half warn 5s; at clock 30
    kill 1"

    With --engine attach, training starts once the --nodes have joined, each with the same secret:
    python -m agileml.join HOST:PORT --secret-file FILE [--reliable]

    Example: spotctl lab train trainer.py --engine attach --address 10.0.0.1:7000 --secret-file
    job.secret --nodes 1+2

    --engine ray needs the extra `cluster`. Machines of the cluster with a resource named reliable
    or transient, or with Ray's label ray.io/market-type, get nodes of that kind.

    Example: spotctl lab train trainer.py --engine ray --address auto --nodes 1+6

    Example: spotctl lab train trainer.py --engine sim --nodes 4+60 --arg rank=32 --converged 0.001
    --log run.jsonl

    With backup workers, the model depends on which work was late. The log records that, and
    --replay repeats the run from the log.

    Example: spotctl lab train mlr --deterministic --stragglers backup-workers=auto --log run.jsonl

    Example: spotctl lab train mlr --replay run.jsonl --out model.npz

    Example: spotctl lab train digits.py:trainer --chaos "at clock 9 kill 1" --against plain --plot
    losses.svg
    """
    from agileml.iteration_log import IterationLog, last_line_of, redone_fields, straggler_fields
    from agileml.runtime.output import show
    from spotctl.files.model_files import check_nothing_lost, save_model
    from spotctl.lab.train import progress, training as train

    session: Session = context.obj
    request = train.Request(
        file, arg or [], engine, nodes, clocks, seconds, loss, converged, seed, partitions, deterministic, slack, stage,
        checkpoint_every, timeouts, chaos, secret_file, state, stragglers, wire, address, against,
    )  # fmt: skip
    require_plots(plot)

    for option, path, suffixes in (
        ("--log", log, ()),
        ("--out", out, (".npz",)),
        ("--plot", plot, (".png", ".svg")),
    ):
        train.check_destination(option, path, suffixes)

    if replay is not None:
        _replay(session, request, replay, out, as_json=json_)
        return

    run = train.prepare(request)
    history: list[Iteration] = []
    with ExitStack() as stack:
        listeners = [history.append, stack.enter_context(_live_view(session))]
        written = (
            None if log is None else stack.enter_context(IterationLog(log, resumes=request.resumes))
        )
        if written is not None:
            listeners.append(written.write)
        with _last_model_in(out):
            trained = run(lambda iteration: _tell(listeners, iteration), show)
        events = (event for iteration in history for event in iteration.events)
        ending = (
            last_line_of(trained)
            | redone_fields(events)
            | (straggler_fields(history) if stragglers else {})
        )
        ending |= train.plain_fields(request, history, trained)
        if written is not None and not trained.interrupted:
            written.put(ending)

    if out is not None:
        save_model(trained.model, out)
    if plot is not None and history:
        progress.draw(history, plot, ending.get("curves", ()))

    if json_:
        session.answer_json(ending)
    elif history:
        session.out.print(progress.summary(history, ending, virtual=engine == "sim"))

    check_nothing_lost(trained.counters)
    if trained.interrupted:
        raise Interrupted(f"interrupted; {_kept(trained, out)}")
    train.forget_state(request)


@contextmanager
def _last_model_in(out: Path | None) -> Iterator[None]:
    """Saves the last stable model of a training whose nodes failed again and again."""
    from agileml.errors import JobFailed
    from agileml.job import GaveUp
    from spotctl.files.model_files import save_model

    try:
        yield
    except GaveUp as error:
        if out is not None:
            save_model(error.trained.model, out)
        raise JobFailed(f"{error}; {_kept(error.trained, out)}") from error


def _kept(trained: Trained, out: Path | None) -> str:
    saved = "was not saved; --out FILE saves it" if out is None else f"is saved in {out}"
    return f"the model after clock {trained.clocks} {saved}"


def _replay(
    session: Session, request: Request, log: Path, out: Path | None, *, as_json: bool
) -> None:
    from agileml.reference import model_digest
    from spotctl.files.model_files import save_model
    from spotctl.lab.train import training as train

    clocks, logged, model = train.replay_log(request, log)
    digest = model_digest(model)
    if logged not in (None, digest):
        raise BadRequest(
            f"--replay {log}: clock {clocks} has model {digest}, and the run had {logged}; only "
            "--deterministic"
            " runs can be replayed, with the same trainer, --arg, --seed and --partitions"
        )

    if out is not None:
        save_model(model, out)
    if as_json:
        session.answer_json(
            {"clocks": clocks, "model_sha256": digest, "compared": logged is not None}
        )
        return

    compared = "the same as the run's" if logged else "not compared: the log has no end"
    session.out.print(f"model after clock {clocks}: sha256 {digest}, {compared}")


def _tell(listeners: Sequence[Listener], iteration: Iteration) -> None:
    for listener in listeners:
        listener(iteration)


@contextmanager
def _live_view(session: Session) -> Iterator[Listener]:
    """Shows events and progress if stderr is a terminal."""
    if not session.err.is_terminal:
        yield unheard
        return

    from rich.text import Text

    from spotctl.lab.train import progress

    with session.err.status(Text("starting")) as status:

        def show(iteration: Iteration) -> None:
            for event in progress.events(iteration):
                session.err.print(Text(event))
            status.update(Text(progress.line(iteration)))

        yield show
