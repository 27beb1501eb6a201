"""The text of a trainer (`TorchModule`) from the parts of a script's training, and of its job
file."""

import ast
import copy
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotctl.files.script.job_text import ScriptAnswers, job_name
from spotctl.files.script.reading import TrainingScript
from spotctl.files.script.source import Definition, names_in, names_read, names_set
from spotctl.files.script.trainer_loop import SEEDS, ScriptTraining, slice_of

_IMPORTS = (ast.Import, ast.ImportFrom)
_PLAIN_CALLS = re.compile(
    r"^(SimpleNamespace|torch\.device|torch\.cuda\.is_available|int|float|str|len|min|max)$"
)


@dataclass(frozen=True, slots=True)
class MeasuredTraining:
    """The figures of a script's training that only running it shows: batches, steps and the values
    of arguments.
    """

    batch_size: int
    batches: int
    """In an epoch."""
    per_step: int
    """Batches whose gradients are added up before a step."""
    steps: int
    schedule_every: int
    """Steps between those of the schedule; 0 without each."""
    clip_norm: float | None
    arguments: Mapping[str, Any]
    own_order: bool = False
    """Whether samples come in the order of a sampler or generator of the script."""

    @property
    def samples(self) -> int:
        """In a step, which is a clock of the trainer."""
        return self.batch_size * self.per_step


class TrainerText:
    """The text of a trainer's file. `problems` are lines of the script that cannot stand in it."""

    def __init__(
        self, script: TrainingScript, training: ScriptTraining, measured: MeasuredTraining
    ) -> None:
        self._script, self._measured = script, measured
        self._training = copy.copy(training)
        self._training.setup = [self._with_values(statement) for statement in training.setup]
        self._objective = [self._with_values(statement) for statement in training.objective]
        if measured.per_step > 1:
            self._training.loader = copy.deepcopy(training.loader)
            _enlarge_batches(self._training.loader, measured.per_step)

        self.problems: list[str] = []
        self._parts = self._slices()
        self._shared = self._shared_statements()
        own = names_set([*filter(_is_top, self._in_order(ast.stmt)), *self._shared])
        functions = "network", "dataset", "objective", "optimizer", "schedule"

        # The script may have a function or a class of such a name.
        self._names = {name: f"{name}_of_trainer" if name in own else name for name in functions}

    def text(self, parts: int) -> str:
        """The file of a trainer whose batches have this number of parts."""
        training, measured = self._training, self._measured
        microbatch = measured.batch_size if measured.samples // parts > measured.batch_size else 0
        options = [
            *([f"schedule={self._names['schedule']}"] if training.scheduler else []),
            f"batch_size={measured.samples}",
            f"parts={parts}",
            *(['order="loader"'] if measured.own_order else []),
            *([f"microbatch={microbatch}"] if microbatch else []),
            *([f"clip_norm={measured.clip_norm!r}"] if training.clip is not None else []),
        ]

        returned = ast.unparse(training.loader)
        schedule = training.scheduler
        if measured.schedule_every > 1:
            schedule = f"StepEvery({schedule}, {measured.schedule_every})"
        names = "StepEvery, TorchModule" if measured.schedule_every > 1 else "TorchModule"
        made = ", ".join(
            self._names[name] for name in ("network", "dataset", "objective", "optimizer")
        )
        uses_namespace = any(
            "SimpleNamespace(" in ast.unparse(each)
            for part in self._parts.values()
            for each in part
        )

        lines = [
            f'"""The trainer of {self._script.path}, by spotctl init: machines may join and leave while it trains."""',
            "",
            *self._imports(),
            *(["from types import SimpleNamespace"] if uses_namespace else []),
            "",
            f"from agileml.torch import {names}",
            *(
                line
                for each in self._in_order(Definition)
                for line in ("", "", *self._definition(each))
            ),
            *(["", "", *(ast.unparse(each) for each in self._shared)] if self._shared else []),
            *self._function("network", "", training.module),
            *self._function("dataset", "", returned),
            *self._loss(),
            *self._function("optimizer", training.module, training.optimizer),
            *(self._function("schedule", training.optimizer, schedule) if schedule else []),
            *("", "", "def trainer():", "    return TorchModule(", f"        {made},"),
            *(f"        {option}," for option in options),
            "    )",
        ]

        return "\n".join(lines) + "\n"

    # -- statements of the script

    def _with_values(self, statement: ast.stmt) -> ast.stmt:
        """A statement with the length of the loader, and with the values of the arguments."""
        loader, measured = ast.unparse(self._training.loader), self._measured

        class Lengths(ast.NodeTransformer):
            def visit_Call(self, node: ast.Call) -> ast.expr:
                if ast.unparse(node) == f"len({loader})":
                    return ast.copy_location(ast.Constant(measured.batches), node)
                self.generic_visit(node)
                return node

        changed: ast.stmt = Lengths().visit(copy.deepcopy(statement))
        if measured.per_step > 1 and names_set([statement]) & names_in([self._training.loader]):
            _enlarge_batches(changed, measured.per_step)
        if isinstance(changed, ast.Assign) and _parses_arguments(changed.value, self._script):
            given = [
                ast.keyword(name, ast.Constant(value)) for name, value in measured.arguments.items()
            ]
            changed.value = ast.Call(ast.Name("SimpleNamespace", ast.Load()), [], given)

        return ast.fix_missing_locations(changed)

    def _slices(self) -> dict[str, list[ast.stmt]]:
        training = self._training
        free = {name for each in self._objective for name in names_read(each)} - names_in(
            [training.batch]
        )
        free -= names_set(self._objective)
        parts = {
            "network": slice_of(training, {training.module}),
            "dataset": slice_of(training, names_in([training.loader])),
            "objective": slice_of(training, free - {training.module}, {training.module}),
            "optimizer": slice_of(training, {training.optimizer}, {training.module}),
            "schedule": slice_of(
                training, {training.scheduler} - {""}, {training.module, training.optimizer}
            ),
        }

        seeds = [
            each
            for each in training.setup
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
        ]

        seeds = [each for each in seeds if SEEDS.search(training.source.called(each.value))]  # type: ignore[arg-type]
        for name in ("network", "dataset"):
            wanted = {id(each) for each in (*parts[name], *seeds)}
            for seed in seeds:
                wanted |= {id(each) for each in slice_of(training, names_read(seed))}
            parts[name] = [each for each in training.setup if id(each) in wanted]

        given = {training.module, training.optimizer, training.scheduler} - {""}
        for name, part in parts.items():
            for each in part:
                outside = names_read(each) & given
                if isinstance(each, Definition) and outside:
                    self.problems.append(
                        f"line {each.lineno}: {each.name} uses {min(outside)} from outside; pass it"
                    )
                elif name == "objective" and outside and not isinstance(each, Definition):
                    self.problems.append(
                        f"line {each.lineno}: the loss depends on it, and it on {min(outside)}"
                    )

        return parts

    def _shared_statements(self) -> list[ast.stmt]:
        """Statements that stand outside of functions: those of the loss, and plain values."""
        training = self._training
        inside = {name for each in self._in_order(Definition) for name in names_read(each)}
        given = {training.module, training.optimizer, training.scheduler}
        shared = {
            id(each) for each in (*self._parts["objective"], *slice_of(training, inside - given))
        }
        plain: set[str] = set()

        for each in self._in_order(ast.stmt):
            if _is_top(each) or id(each) in shared:
                plain |= names_set([each])
            elif isinstance(each, ast.Assign) and names_read(each) <= plain | {
                "SimpleNamespace",
                "len",
                "int",
                "float",
            }:
                calls = [node for node in ast.walk(each.value) if isinstance(node, ast.Call)]
                sets_once = (
                    sum(
                        bool(names_set([other]) & names_set([each]))
                        for other in self._training.setup
                    )
                    == 1
                )
                if sets_once and all(
                    _PLAIN_CALLS.search(self._training.source.called(call)) for call in calls
                ):
                    shared.add(id(each))
                    plain |= names_set([each])

        return [
            each for each in self._in_order(ast.stmt) if id(each) in shared and not _is_top(each)
        ]

    def _in_order(self, kind: type | tuple[type, ...] | object) -> list[ast.stmt]:
        """The statements of all parts, in the order of the script."""
        used = {id(each) for part in self._parts.values() for each in part}
        return [
            each
            for each in self._training.setup
            if id(each) in used and isinstance(each, kind)  # type: ignore[arg-type]
        ]

    def _imports(self) -> Iterator[str]:
        """The imports, without names that nothing uses."""
        read = {
            name
            for part in self._parts.values()
            for each in part
            if not isinstance(each, _IMPORTS)
            for name in names_read(each)
        }

        read |= {name for each in self._objective for name in names_read(each)} | names_in(
            [self._training.loader]
        )
        for each in self._in_order(_IMPORTS):
            assert isinstance(each, ast.Import | ast.ImportFrom)
            kept = [
                alias
                for alias in each.names
                if (alias.asname or alias.name.partition(".")[0]) in read
            ]
            if kept:
                statement = copy.copy(each)
                statement.names = kept
                yield ast.unparse(statement)

    def _definition(self, each: ast.stmt) -> list[str]:
        assert isinstance(each, Definition)
        first = min([each.lineno, *(mark.lineno for mark in each.decorator_list)])
        lines = self._training.source.lines[first - 1 : each.end_lineno]
        return textwrap.dedent("\n".join(lines)).splitlines()

    # -- functions of the trainer

    def _function(self, name: str, parameter: str, returned: str) -> Iterator[str]:
        yield from ("", "", f"def {self._names[name]}({parameter}):")
        body = [
            each
            for each in self._parts[name]
            if not _is_top(each) and not any(each is other for other in self._shared)
        ]

        for each in body:
            yield from textwrap.indent(ast.unparse(each), "    ").splitlines()
        yield f"    return {returned}"

    def _loss(self) -> Iterator[str]:
        training, measured = self._training, self._measured
        target = ast.unparse(training.batch).removeprefix("(").removesuffix(")")
        parameter = target if isinstance(training.batch, ast.Name) else "batch"
        first, last = training.objective[0].lineno, training.objective[-1].lineno
        head = f"def {self._names['objective']}({training.module}, {parameter}):"
        yield from ("", "", f"{head}  # lines {first} to {last} of {self._script.path}")
        if parameter != target:
            yield f"    {target} = {parameter}"

        for each in self._objective:
            statement = copy.deepcopy(each)
            if measured.per_step > 1:
                # The script sums this many gradients; the trainer takes their mean.
                for node in ast.walk(statement):
                    if isinstance(node, ast.Return) and node.value is not None:
                        node.value = ast.BinOp(
                            node.value, ast.Mult(), ast.Constant(measured.per_step)
                        )
            yield from textwrap.indent(ast.unparse(statement), "    ").splitlines()


def _is_top(each: ast.stmt) -> bool:
    return isinstance(each, (*_IMPORTS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _parses_arguments(value: ast.expr, script: TrainingScript) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute):
        return value.func.attr == "parse_args"

    function = None
    if isinstance(value.func, ast.Name):
        function = script.source.functions.get(value.func.id)
    return function is not None and any(
        isinstance(node, ast.Attribute) and node.attr == "parse_args" for node in ast.walk(function)
    )


def _enlarge_batches(statement: ast.AST, times: int) -> None:
    """Makes a DataLoader read as many samples as a step needs."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("DataLoader"):
            for keyword in call.keywords:
                if keyword.arg == "batch_size":
                    keyword.value = ast.BinOp(keyword.value, ast.Mult(), ast.Constant(times))
                    return
            if len(call.args) > 1:
                call.args[1] = ast.BinOp(call.args[1], ast.Mult(), ast.Constant(times))
            else:
                call.keywords.append(ast.keyword("batch_size", ast.Constant(times)))
            return


def trainer_job_text(
    script: TrainingScript, answers: ScriptAnswers, module: str, clocks: int
) -> str:
    """The job file of a trainer."""
    lines = [
        f"# Written by spotctl init {script.path} --trainer, which compared three clocks with "
        "those of the script.",
        "",
        f"name: {job_name(script)}",
        "kind: agileml # loses no work when machines are evicted",
        f"app: {module}:trainer",
        f"stop: {{clocks: {clocks}}} # the steps of the script: one clock is one batch",
        "budget: 25 USD # hard limit",
        "",
        "resources:",
        f"  clouds: [{answers.cloud}] # or local, aws, gcp, azure",
        "  types: [c4.2xlarge]"
        if answers.is_local
        else "  types: {vcpus: 4..16, memory_gib: 8..64}",
        "  machines: 2..4 # spot machines",
        "  reliable: {machines: 1} # on demand; it keeps the model",
    ]
    return "\n".join([*lines, *(["local: {speed: 120}"] if answers.is_local else [])]) + "\n"


def refusal_of(script: TrainingScript, lines: str) -> str:
    """A refusal with the lines of a script."""
    return (
        f"{script.path} cannot become a trainer as it is: {lines}. Change these lines, or keep the "
        f"script: spotctl init {script.path}"
    )
