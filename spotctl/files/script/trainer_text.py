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
from spotctl.files.script.source import (
    Definition,
    method_of,
    names_changed,
    names_in,
    names_read,
    names_set,
    nodes_of,
)
from spotctl.files.script.trainer_loop import SEEDS, QuietCode, ScriptTraining, slice_of

_IMPORTS = (ast.Import, ast.ImportFrom)
_AT_THE_TOP = (*_IMPORTS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SETTERS = re.compile(r"^torch\.set_(default_\w+|float32_matmul_precision|flush_denormal)$")
_MODES = frozenset({"train", "zero_grad"})
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
    first_epoch: int | None = 0
    """The epoch that the sampler gets first; None: it gets none."""

    @property
    def samples(self) -> int:
        """In a step, which is a clock of the trainer."""
        return self.batch_size * self.per_step


class TrainerText:
    """The text of a trainer's file. `problems` are lines of the script that cannot stand in it, and
    `left_out` those that may do something, and are not carried."""

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
        self.left_out = [*self._not_carried()]
        self._shared = self._shared_statements()
        own = names_set([*self._in_order(_AT_THE_TOP), *self._shared])
        functions = "network", "dataset", "objective", "optimizer", "schedule"

        # The script may have a function or a class of such a name.
        self._names = {name: f"{name}_of_trainer" if name in own else name for name in functions}

    def text(self, parts: int) -> str:
        """The file of a trainer whose batches have this number of parts."""
        training, schedule = self._training, self._training.scheduler
        names = "TorchModule"
        if self._measured.schedule_every > 1:
            names = "StepEvery, TorchModule"
            schedule = f"StepEvery({schedule}, {self._measured.schedule_every})"

        head = f"The trainer of {self._script.path}, by spotctl init"
        lines = [f'"""{head}: machines may join and leave while it trains."""', ""]
        lines += self._imports()
        statements = [each for part in self._parts.values() for each in part]
        if any("SimpleNamespace(" in ast.unparse(each) for each in statements):
            lines.append("from types import SimpleNamespace")
        lines += ["", f"from agileml.torch import {names}"]

        for each in self._in_order(Definition):
            assert isinstance(each, Definition)
            first = min([each.lineno, *(mark.lineno for mark in each.decorator_list)])
            written = training.source.lines[first - 1 : each.end_lineno]
            lines += ["", "", *textwrap.dedent("\n".join(written)).splitlines()]
        if self._shared:
            lines += ["", "", *map(ast.unparse, self._shared)]
        lines += self._function("network", "", training.module)
        lines += self._function("dataset", "", ast.unparse(training.loader))
        lines += self._loss()
        lines += self._function("optimizer", training.module, training.optimizer)
        if schedule:
            lines += self._function("schedule", training.optimizer, schedule)

        parts_of_trainer = ("network", "dataset", "objective", "optimizer")
        made = ", ".join(self._names[name] for name in parts_of_trainer)
        lines += ["", "", "def trainer():", "    return TorchModule(", f"        {made},"]
        lines += [f"        {option}," for option in self._options(parts)]
        lines.append("    )")
        return "\n".join(lines) + "\n"

    def _options(self, parts: int) -> Iterator[str]:
        """The options of the trainer with this number of parts."""
        training, measured = self._training, self._measured
        if training.scheduler:
            yield f"schedule={self._names['schedule']}"
        yield f"batch_size={measured.samples}"
        yield f"parts={parts}"
        if measured.own_order:
            yield 'order="loader"'
            if measured.first_epoch != 0:
                yield f"first_epoch={measured.first_epoch}"
        if measured.samples // parts > measured.batch_size > 0:
            yield f"microbatch={measured.batch_size}"
        if training.clip is not None:
            yield f"clip_norm={measured.clip_norm!r}"

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
        # By itself, or in a function of the script's.
        called = getattr(getattr(changed, "value", None), "func", None)
        functions = self._script.source.functions
        within = [functions.get(getattr(called, "id", ""), called)] if called is not None else []
        parses = any(node.attr == "parse_args" for node in nodes_of(ast.Attribute, *within))
        if isinstance(changed, ast.Assign) and parses:
            given = [
                ast.keyword(name, ast.Constant(value)) for name, value in measured.arguments.items()
            ]
            changed.value = ast.Call(ast.Name("SimpleNamespace", ast.Load()), [], given)

        return ast.fix_missing_locations(changed)

    def _slices(self) -> dict[str, list[ast.stmt]]:
        training, source = self._training, self._training.source
        module, optimizer = training.module, training.optimizer
        free = {name for each in self._objective for name in names_read(each)}
        free -= names_in([training.batch]) | names_set(self._objective)
        scheduler = {training.scheduler} - {""}
        parts = {
            "network": slice_of(training, {module}),
            "dataset": slice_of(training, names_in([training.loader])),
            "objective": slice_of(training, free - {module}, {module}),
            "optimizer": slice_of(training, {optimizer}, {module}),
            "schedule": slice_of(training, scheduler, {module, optimizer}),
        }

        # A sampler, say, may get its epoch when the loader has it already.
        data = parts["dataset"]
        later = [
            each
            for each in slice_of(training, names_in([training.loader]) | names_set(data))
            if isinstance(each, ast.Expr)
        ]
        data += [*later, *(part for each in later for part in slice_of(training, names_read(each)))]

        # What the statements that set seeds need belongs to both.
        seeding = set[int]()
        for each in training.setup:
            call = each.value if isinstance(each, ast.Expr) else None
            if isinstance(call, ast.Call) and SEEDS.search(source.called(call)):
                seeding.add(id(each))
                seeding |= {id(needed) for needed in slice_of(training, names_read(each))}
        for name in ("network", "dataset"):
            wanted = seeding | {id(each) for each in parts[name]}
            parts[name] = [each for each in training.setup if id(each) in wanted]

        # What holds for the whole process comes before all parts.
        setting = {id(each) for each in training.setup if self._is_setting(each)}
        setting |= {id(each) for each in parts["objective"]}
        parts["objective"] = [each for each in training.setup if id(each) in setting]

        given = {module, optimizer} | scheduler
        for name, part in parts.items():
            for each in part:
                outside = names_read(each) & given
                if isinstance(each, Definition) and outside:
                    self.problems.append(
                        f"line {each.lineno}: {each.name} uses {min(outside)} from outside; pass it"
                    )
                elif name == "objective" and outside:
                    self.problems.append(
                        f"line {each.lineno}: the loss depends on it, and it on {min(outside)}"
                    )

        return parts

    def _is_setting(self, statement: ast.stmt) -> bool:
        """Whether a statement sets something for the whole process."""
        match statement:
            case ast.Expr(ast.Call() as call):
                return bool(_SETTERS.search(self._training.source.called(call)))
            case ast.Assign(targets=[ast.Attribute() as target]):
                return self._training.source.dotted(target).startswith("torch.backends.")
        return False

    def _not_carried(self) -> Iterator[str]:
        """The lines that are in no part, and may do more than show, measure or store."""
        training, quiet = self._training, QuietCode(self._training)
        used = {id(each) for part in self._parts.values() for each in part}
        for each in (*training.setup, *training.after):
            call = each.value if isinstance(each, ast.Expr) else None
            is_known = isinstance(call, ast.Constant) or (
                isinstance(call, ast.Call)
                and (SEEDS.search(training.source.called(call)) or method_of(call) in _MODES)
            )
            is_value = isinstance(each, ast.Assign | ast.AnnAssign) and not names_changed(each)
            if is_known or is_value or id(each) in used or isinstance(each, _AT_THE_TOP):
                continue
            if not quiet.allows(each, set()):
                yield f"line {each.lineno} is not carried: {ast.unparse(each).splitlines()[0]}"

    def _shared_statements(self) -> list[ast.stmt]:
        """Statements that stand outside of functions: those of the loss, and plain values."""
        training = self._training
        inside = {name for each in self._in_order(Definition) for name in names_read(each)}
        inside -= {training.module, training.optimizer, training.scheduler}
        shared = {id(each) for each in (*self._parts["objective"], *slice_of(training, inside))}

        plain = {"SimpleNamespace", "len", "int", "float"}
        for each in self._in_order(ast.stmt):
            given = names_set([each])
            if isinstance(each, _AT_THE_TOP) or id(each) in shared:
                plain |= given
            elif isinstance(each, ast.Assign) and names_read(each) <= plain:
                called = map(training.source.called, nodes_of(ast.Call, each.value))
                setters = [other for other in training.setup if names_set([other]) & given]
                if len(setters) == 1 and all(map(_PLAIN_CALLS.search, called)):
                    shared.add(id(each))
                    plain |= given

        return [
            each
            for each in self._in_order(ast.stmt)
            if id(each) in shared and not isinstance(each, _AT_THE_TOP)
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
        read = names_in([self._training.loader])
        statements = [each for part in self._parts.values() for each in part]
        for each in (*statements, *self._objective):
            if not isinstance(each, _IMPORTS):
                read |= names_read(each)

        for each in self._in_order(_IMPORTS):
            assert isinstance(each, ast.Import | ast.ImportFrom)
            kept = []
            for alias in each.names:
                name = alias.asname or alias.name.partition(".")[0]
                if name in read:
                    kept.append(alias)
            if kept:
                statement = copy.copy(each)
                statement.names = kept
                yield ast.unparse(statement)

    # -- functions of the trainer

    def _function(self, name: str, parameter: str, returned: str) -> Iterator[str]:
        yield from ("", "", f"def {self._names[name]}({parameter}):")
        body = [
            each
            for each in self._parts[name]
            if not isinstance(each, _AT_THE_TOP)
            and not any(each is other for other in self._shared)
        ]

        for each in body:
            yield from textwrap.indent(ast.unparse(each), "    ").splitlines()
        yield f"    return {returned}"

    def _loss(self) -> Iterator[str]:
        training, times = self._training, self._measured.per_step
        target = ast.unparse(training.batch).removeprefix("(").removesuffix(")")
        parameter = target if isinstance(training.batch, ast.Name) else "batch"
        first, last = training.objective[0].lineno, training.objective[-1].lineno
        head = f"def {self._names['objective']}({training.module}, {parameter}):"
        yield from ("", "", f"{head}  # lines {first} to {last} of {self._script.path}")
        if parameter != target:
            yield f"    {target} = {parameter}"

        for each in self._objective:
            statement = copy.deepcopy(each)
            for node in nodes_of(ast.Return, statement):
                if times > 1 and node.value is not None:
                    # The script sums this many gradients; the trainer takes their mean.
                    node.value = ast.BinOp(node.value, ast.Mult(), ast.Constant(times))
            yield from textwrap.indent(ast.unparse(statement), "    ").splitlines()


def _enlarge_batches(statement: ast.AST, times: int) -> None:
    """Makes a DataLoader read as many samples as a step needs."""
    for call in nodes_of(ast.Call, statement):
        if not ast.unparse(call.func).endswith("DataLoader"):
            continue
        more = ast.Constant(times)
        for keyword in call.keywords:
            if keyword.arg == "batch_size":
                keyword.value = ast.BinOp(keyword.value, ast.Mult(), more)
                return
        if len(call.args) > 1:
            call.args[1] = ast.BinOp(call.args[1], ast.Mult(), more)
        else:
            call.keywords.append(ast.keyword("batch_size", more))
        return


def trainer_job_text(
    script: TrainingScript, answers: ScriptAnswers, module: str, clocks: int
) -> str:
    """The job file of a trainer."""
    types = "{vcpus: 4..16, memory_gib: 8..64}"
    market = []
    if answers.is_local:
        types, market = "[c4.2xlarge]", ["local: {speed: 120}"]

    compared = "which compared three clocks with those of the script."
    lines = [
        f"# Written by spotctl init {script.path} --trainer, {compared}",
        "",
        f"name: {job_name(script)}",
        "kind: agileml # loses no work when machines are evicted",
        f"app: {module}:trainer",
        f"stop: {{clocks: {clocks}}} # the steps of the script: one clock is one batch",
        "budget: 25 USD # hard limit",
        "",
        "resources:",
        f"  clouds: [{answers.cloud}] # or local, aws, gcp, azure",
        f"  types: {types}",
        "  machines: 2..4 # spot machines",
        "  reliable: {machines: 1} # on demand; it keeps the model",
        *market,
    ]
    return "\n".join(lines) + "\n"
