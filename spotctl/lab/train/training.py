"""`spotctl lab train`: from command-line options to a training run."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agileml.apps.registry import TrainerSource, parse_arguments
from agileml.core.events import Iteration
from agileml.engines.attached import AttachEngine, is_unfinished
from agileml.engines.base import Engine
from agileml.engines.chaos import Chaos
from agileml.engines.ray import RayEngine
from agileml.errors import TrainerFailed
from agileml.iteration_log import read_log
from agileml.job import Convergence, Listener, Trained
from agileml.params.layout import Params
from agileml.policies.stage import FixedStage, LearnedStage, TrainingPolicy
from agileml.reference import replay
from agileml.runtime.folders import read_secret
from agileml.runtime.output import Output
from agileml.training import TrainOptions, train
from agileml.transport import parse_host_port
from agileml.user_code import users_traceback
from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import amounts

TIMEOUTS = ("heartbeat", "hang", "startup")
_SHORTEST = 0.1

CLOCKS = 100
"""Default clock limit when no stopping criterion is given."""

_STAGES: Mapping[str, TrainingPolicy] = {
    "auto": LearnedStage(),
    "1": FixedStage(1),
    "2": FixedStage(2),
    "3": FixedStage(3),
}


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a training run, which ends at the first criterion that holds: clocks, seconds,
    loss, converged.
    """

    file: str
    arguments: Sequence[str]
    engine: str
    nodes: str
    clocks: int | None
    seconds: float | None
    loss: float | None
    converged: float | None
    seed: int
    partitions: int | None
    deterministic: bool
    slack: str
    stage: str
    checkpoint_every: int
    timeouts: str
    chaos: str
    secret_file: Path | None = None
    state: Path | None = None
    stragglers: str = ""
    wire: str | None = None
    address: str | None = None
    against: str = ""

    @property
    def resumes(self) -> bool:
        """Whether an earlier process has left this job unfinished."""
        return self.state is not None and is_unfinished(self.state)


def prepare(request: Request) -> Callable[[Listener, Output], Trained]:
    """Checks the options and returns the run, ready to start; raises BadRequest for options that
    cannot work.
    """
    if request.stage not in _STAGES:
        raise BadRequest(
            f"--stage {request.stage}: unknown stage; expected one of {', '.join(_STAGES)}"
        )

    engine = _engine(request)
    _find_modules_here()
    _check_against(request)
    source = TrainerSource(request.file, parse_arguments(list(request.arguments)))
    chaos = Chaos.parse(request.chaos, request.seed)
    options: TrainOptions = {
        "seed": request.seed,
        "partitions": request.partitions,
        "deterministic": request.deterministic,
        "slack": _slack(request.slack, request.deterministic),
        "stage": _STAGES[request.stage],
        "checkpoint_every": request.checkpoint_every,
        "wire": request.wire,
    }

    seconds = amounts("--timeouts", request.timeouts, "hang=60") if request.timeouts else {}
    if unknown := seconds.keys() - TIMEOUTS:
        raise BadRequest(
            f"--timeouts {request.timeouts!r}: {min(unknown)!r} is not one of {', '.join(TIMEOUTS)}"
        )
    if too_short := [name for name, value in seconds.items() if value < _SHORTEST]:
        raise BadRequest(
            f"--timeouts {request.timeouts!r}: {too_short[0]} is below {_SHORTEST} seconds"
        )

    options["heartbeat_timeout"] = seconds.get("heartbeat", 1.0)
    options["hang_timeout"] = seconds.get("hang", 30.0)
    options["startup_timeout"] = seconds.get("startup", 300.0)
    if request.stragglers:
        options["stragglers"] = request.stragglers
    open_end = request.clocks is request.seconds is request.loss is request.converged is None
    if request.seconds is not None:
        options["seconds"] = request.seconds
    if request.loss is not None:
        options["loss"] = request.loss
    if request.converged is not None:
        options["converged"] = Convergence(request.converged)

    def run(listener: Listener, output: Output) -> Trained:
        # What the trainer prints in this process is not the command's answer.
        with redirect_stdout(sys.stderr), _traceback_of_trainer():
            return train(
                source,
                request.nodes,
                engine,
                clocks=CLOCKS if open_end else request.clocks,
                chaos=chaos,
                listener=listener,
                output=output,
                **options,
            )

    return run


def replay_log(request: Request, log: Path) -> tuple[int, str | None, Params]:
    """Repeats the decisions of a logged run in this process; returns its clocks, the digest of its
    model, and the model that results here."""
    accepted, digest = read_log(log)
    _find_modules_here()
    source = TrainerSource(request.file, parse_arguments(list(request.arguments)))
    with redirect_stdout(sys.stderr), _traceback_of_trainer():
        trainer = source.load()
        model = replay(trainer, accepted, request.seed, request.partitions, request.wire)
    return len(accepted), digest, model


def plain_fields(
    request: Request, history: Sequence[Iteration], trained: Trained
) -> dict[str, Any]:
    """With --against plain, `curves`: the losses of the run, and those of plain PyTorch after as
    many clocks.
    """
    if not request.against or trained.interrupted:
        return {}

    from agileml.roles.node import JobSettings
    from agileml.torch.plain import plain_losses

    losses = {iteration.clock - 1: iteration.loss for iteration in history}
    losses[trained.clocks] = trained.loss
    ours = {clocks: loss for clocks, loss in sorted(losses.items()) if loss is not None}

    curves = list[dict[str, float]]()
    with redirect_stdout(sys.stderr), _traceback_of_trainer():
        module, sample = _torch_module(request), JobSettings().loss_sample
        theirs = plain_losses(module, [*ours], request.seed, sample)
        for (clocks, loss), plain in zip(ours.items(), theirs, strict=True):
            point = {"clocks": clocks, "loss": loss, "plain_loss": plain}
            curves.append(point)

    return {"curves": curves}


def _check_against(request: Request) -> None:
    """Refuses a training that cannot be compared, before it starts."""
    if request.against not in ("", "plain"):
        raise BadRequest(
            f"--against {request.against}: unknown; expected plain, the loop of PyTorch in one "
            "process"
        )
    if request.against:
        with redirect_stdout(sys.stderr), _traceback_of_trainer():
            _torch_module(request)


# A TorchModule, whose module takes seconds to import.
def _torch_module(request: Request) -> Any:  # noqa: ANN401
    from agileml.torch.plain import check_plain

    return check_plain(TrainerSource(request.file, parse_arguments(list(request.arguments))).load())


def forget_state(request: Request) -> None:
    """Deletes the saved state of a job whose result is safe."""
    if request.state is not None:
        shutil.rmtree(request.state, ignore_errors=True)


@contextmanager
def _traceback_of_trainer() -> Iterator[None]:
    """Prints where a trainer that runs in this process failed; nodes print it themselves."""
    try:
        yield
    except TrainerFailed as error:
        if error.__cause__ is not None:
            sys.stderr.write(users_traceback(error.__cause__))
        raise


def _engine(request: Request) -> str | Engine:
    """The engine by name, or the one that waits for nodes at an address."""
    if request.address is not None and request.engine not in ("attach", "ray"):
        raise BadRequest(
            "--address is only for --engine attach and ray, whose nodes run on other machines"
        )

    given = {"--address HOST:PORT": request.address, "--secret-file FILE": request.secret_file}
    state = None if request.state is None else request.state.absolute()
    if request.engine != "attach":
        if request.secret_file is not None:
            raise BadRequest(
                "--secret-file is only for --engine attach, whose nodes join from other machines"
            )
        if request.engine == "ray":
            return RayEngine(request.address, state=state)
        if state is not None:
            raise BadRequest(
                "--state is only for --engine attach and ray, whose nodes run on other machines"
            )
        return request.engine

    for option, value in given.items():
        if value is None:
            raise BadRequest(
                f"--engine attach also needs {option}, so that nodes can join and authenticate"
            )

    assert request.address is not None
    assert request.secret_file is not None
    return AttachEngine(parse_host_port(request.address), read_secret(request.secret_file), state)


def check_destination(option: str, path: Path | None, suffixes: tuple[str, ...] = ()) -> None:
    """Refuses, before any work is done, a file that could not be written at the end."""
    if path is None:
        return

    allowed = " or ".join(suffixes)
    if suffixes and path.suffix.lower() not in suffixes:
        raise BadRequest(f"{option} {path}: the name must end with {allowed}")
    why = ""
    if path.is_dir():
        why = "is a folder"
    elif not path.parent.is_dir():
        why = f"there is no folder {path.parent}"
    if why:
        raise BadRequest(f"{option} {path}: {why}; name a file in an existing folder")


def _slack(text: str, deterministic: bool) -> int | None:
    if text == "asp":
        slack = None
    elif text.isascii() and text.isdigit():
        slack = int(text)
    else:
        raise BadRequest(f"--slack {text}: is not a number of clocks; write 0, 1, ... or asp")

    if deterministic and slack != 0:
        raise BadRequest(
            f"--deterministic with --slack {text}: workers that run ahead see updates in varying "
            "order, so results differ between runs; remove one of the options"
        )

    return slack


def _find_modules_here() -> None:
    """Lets `module:Class` be in the working directory, as with Python itself."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
