"""The training loop of a script, read as the parts of a trainer: network, data, loss, optimizer,
schedule and steps.

Each statement of the loop becomes a part, is known to leave the training as it is, or is a line
that cannot be carried.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from spotctl.files.script.flat_program import FlatProgram
from spotctl.files.script.reading import TrainingScript
from spotctl.files.script.source import (
    QUIET,
    Definition,
    LoopStatement,
    ScriptSource,
    Statements,
    globals_of,
    has_backward,
    is_call_of,
    method_of,
    names_changed,
    names_in,
    names_read,
    names_set,
    nodes_of,
    own_nodes,
    unwrapped,
)

SEEDS = re.compile(
    r"(^|\.)(manual_seed\w*|seed|set_seed|seed_everything|use_deterministic_algorithms)$"
)
_QUIET_METHODS = frozenset(
    "item detach cpu cuda to numpy mean sum argmax max min eq ne view view_as reshape size tolist "
    "long float double"
    " format items keys values join strip split state_dict parameters named_parameters numel"
    " add_scalar add_scalars add_image add_text flush close write set_postfix set_description "
    "set_postfix_str get dim"
    " norm abs sqrt pow exp log squeeze unsqueeze flatten type_as clone topk softmax log_softmax "
    "sigmoid t get_last_lr"
    " isnan isfinite any all eval train expand expand_as zip count copy lower upper gt lt ge le".split()
)
_CONTAINERS = frozenset("list dict set defaultdict deque Counter zeros empty full".split())
_ALTERS = re.compile(r"_$|^(apply|update_parameters|update_bn)$")
"""Methods and functions that change the weights they are given. `load_state_dict` has those of an
earlier step, which the script saves."""
_CHANGING_METHODS = frozenset("append extend update insert pop clear add remove setdefault".split())
"""Methods that change their object, and are quiet where that is a list, dict or set of the loop."""
_TORCH_EFFECTS = re.compile(
    r"^torch\.(optim|autograd|set_|use_|seed|manual_seed|nn\.utils|nn\.init|distributed)|_$"
)
_SHARES = re.compile(
    r"DistributedDataParallel|DataParallel|FullyShardedDataParallel|init_process_group|Accelerator$"
)


_GIVES_VALUES = (ast.Assign, ast.AugAssign, ast.AnnAssign)


@dataclass
class ScriptTraining:
    """The parts of a training. Statements are those of the script, functions on the way to the loop
    written out.
    """

    source: ScriptSource
    setup: list[ast.stmt] = field(default_factory=list)
    """All statements before the loop, definitions included."""
    outer: LoopStatement | None = None
    inner: ast.For | None = None
    """The loop over batches, within `outer` or the same."""
    module: str = ""
    optimizer: str = ""
    scheduler: str = ""
    loader: ast.expr = field(init=False)
    batch: ast.expr = field(init=False)
    """The names that a batch has in the loop."""
    objective: list[ast.stmt] = field(default_factory=list)
    clip: ast.expr | None = None
    count: ast.Module = field(init=False)
    """The loops without what they compute: calls `mark` with `begin` of a loop over batches,
    `batch`, `step` or `schedule`, and with `epoch`, the object whose `set_epoch` gets it, and the number.
    """
    after: list[ast.stmt] = field(default_factory=list)
    """Statements after the loop that may do something with the network, and do not change it."""
    uncarried: list[tuple[int, str]] = field(default_factory=list)
    """Lines of the script that a trainer cannot carry, each with the reason."""

    def refuse(self, node: ast.AST, reason: str) -> None:
        self.uncarried.append((getattr(node, "lineno", 1), reason))


def training_of(script: TrainingScript) -> ScriptTraining:
    """The training of a script, with the lines that cannot be carried."""
    training = ScriptTraining(script.source)
    source = script.source
    backwards = [call for call in source.calls if method_of(call) == "backward"]
    for call in source.calls:
        if _SHARES.search(source.called(call)):
            training.refuse(
                call,
                "divides the work among processes itself; remove it, nodes of the trainer do that",
            )
        elif source.called(call).endswith("GradScaler"):
            training.refuse(
                call, "a GradScaler leaves steps out by what it finds; train in bfloat16 without it"
            )

    for call in backwards[1:]:
        training.refuse(call, "a second loss; a trainer has one")
    if not backwards:
        training.refuse(source.tree.body[0], "no loop calls backward()")
    if training.uncarried:
        return training

    program = FlatProgram(script, training.refuse).leading_to(backwards[0])
    if not training.uncarried:
        _find_parts(training, program)
    training.uncarried.sort(key=itemgetter(0))
    return training


# -- the parts -------------------------------------------------------------------------------------


def _find_parts(training: ScriptTraining, program: Statements) -> None:
    loop = _training_loop(program)
    if loop is None:
        culprit = next((each for each in program if has_backward(each)), program[0])
        training.refuse(
            culprit, "backward() is called outside of a loop over batches, or only in some cases"
        )
        return

    place = program.index(loop)
    training.setup = list(program[:place])
    training.outer = loop
    while (deeper := _training_loop(loop.body)) is not None:
        loop = deeper

    loader = unwrapped(loop.iter) if isinstance(loop, ast.For) else None
    counts = loader is None or is_call_of(training.source, loader, "range", "count")
    if counts or loader is None or not isinstance(loop, ast.For):
        training.refuse(loop, "the loop does not take its batches from a DataLoader")
        return

    training.inner, training.loader = loop, loader
    _find_state(training)
    if not training.uncarried:
        _LoopReader(training).read()
        _read_after(training, program[place + 1 :])


def _read_after(training: ScriptTraining, statements: Statements) -> None:
    """Notes what a script does with its network after the loop, which a trainer does not do."""
    quiet = QuietCode(training)
    for statement in statements:
        is_reached = training.module in names_read(statement) | names_changed(statement)
        if isinstance(statement, Definition) or not is_reached:
            continue
        if quiet.allows(statement, {training.module}):
            continue

        loops = [
            loop
            for loop in nodes_of(ast.For, statement)
            if training.module in names_in([loop.iter])
        ]
        weights = {training.module} | names_in([loop.target for loop in loops])
        changed: list[ast.AST] = [
            node for node in nodes_of(ast.Attribute, statement) if isinstance(node.ctx, ast.Store)
        ]
        changed += [each.target for each in nodes_of(ast.AugAssign, statement)]
        changed += [
            call for call in nodes_of(ast.Call, statement) if _ALTERS.search(method_of(call))
        ]
        if any(weights & names_in([node]) for node in changed):
            training.refuse(
                statement,
                f"changes {training.module} after the loop; a trainer ends with the loop: do this "
                "in another script, with the weights that the trainer saves",
            )
        else:
            training.after.append(statement)


def _training_loop(block: Statements) -> LoopStatement | None:
    """The first loop among statements that calls backward()."""
    for each in block:
        if isinstance(each, LoopStatement) and has_backward(each):
            return each
    return None


def _find_state(training: ScriptTraining) -> None:
    """The names of the optimizer, the scheduler and the network."""
    assert training.outer is not None
    stepped: dict[str, ast.Call] = {}
    for call in nodes_of(ast.Call, training.outer):
        match call.func:
            case ast.Attribute(ast.Name(name), "step"):
                stepped.setdefault(name, call)

    # A schedule is made of what else takes steps.
    schedulers, optimizers = list[str](), list[str]()
    for name in stepped:
        given = set[str]()
        for statement in training.setup:
            value = statement.value if isinstance(statement, ast.Assign) else None
            if isinstance(value, ast.Call) and name in names_set([statement]):
                given |= names_in([*value.args, *(key.value for key in value.keywords)])
        kind = schedulers if given & (stepped.keys() - {name}) else optimizers
        kind.append(name)

    for name in optimizers[1:]:
        training.refuse(
            stepped[name],
            f"a second optimizer, {name}; a trainer's optimizer() returns those of one loss",
        )

    for name in schedulers[1:]:
        training.refuse(
            stepped[name],
            f"a second schedule, {name}; combine them in a SequentialLR or ChainedScheduler",
        )

    if not optimizers:
        training.refuse(training.outer, "no optimizer made before the loop takes a step in it")
        return

    training.optimizer = optimizers[0]
    if schedulers:
        training.scheduler = schedulers[0]
    _find_network(training, stepped[training.optimizer])


def _find_network(training: ScriptTraining, step: ast.Call) -> None:
    """The name of the network, whose parameters the optimizer that takes a step is made of."""
    closure = slice_of(training, {training.optimizer})
    made = [statement for statement in closure if not isinstance(statement, Definition)]
    owners = []
    for node in nodes_of(ast.Attribute, *made):
        match node:
            case ast.Attribute(ast.Name(owner), "parameters" | "named_parameters"):
                owners.append(owner)

    for owner in sorted({*owners} - {*owners[:1]}):
        training.refuse(
            closure[-1], f"the optimizer trains {owners[0]} and {owner}; make them one module"
        )

    if not owners:
        training.refuse(step, "the optimizer is not made of a network's parameters()")
        return

    training.module = owners[0]
    modes = []
    expressions = (each for each in training.setup if isinstance(each, ast.Expr))
    for call in nodes_of(ast.Call, *expressions):
        is_mode = method_of(call) in ("eval", "train")
        if is_mode and names_in([call.func]) == {training.module}:
            modes.append(call)

    if modes and (method_of(modes[-1]) == "eval" or modes[-1].args) and not _sets_train(training):
        training.refuse(
            modes[-1],
            "the network trains in the mode for evaluation; a trainer's is in that for training",
        )


def _sets_train(training: ScriptTraining) -> bool:
    assert training.outer is not None
    return any(
        method_of(call) == "train" and not call.args for call in nodes_of(ast.Call, training.outer)
    )


class _LoopReader:
    """Sorts the statements of the loops."""

    def __init__(self, training: ScriptTraining) -> None:
        assert training.outer is not None
        assert training.inner is not None
        self.training, self.inner = training, training.inner
        self.loops = [training.outer]

        while (deeper := _training_loop(self.loops[-1].body)) is not None:
            self.loops.append(deeper)

        self.changed = names_set([training.outer])
        self.quiet = QuietCode(training)
        target: ast.expr = self.inner.target
        self.is_numbered = is_call_of(training.source, self.inner.iter, "enumerate")
        if self.is_numbered and isinstance(target, ast.Tuple):
            target = target.elts[-1]

        training.batch = target
        self.counters = self._counters()
        self.seen: set[str] = set()

    def read(self) -> None:
        training = self.training
        before, after = self._objective()
        for loop in self.loops[:-1]:
            if isinstance(loop, ast.While) and not self._is_counted(loop.test):
                training.refuse(loop, "how long the loop runs depends on more than counters")
            for statement in loop.body:
                if not (isinstance(statement, LoopStatement) and has_backward(statement)):
                    self._sort(statement, {"schedule", "zero", "epoch"})

        for statement in (*before, *after):
            more = {"step", "clip"} if statement in after else set()
            self._sort(statement, {"schedule", "zero", "epoch"} | more)

        if "step" not in self.seen:
            training.refuse(self.inner, "the optimizer takes no step")
        elif "zero" not in self.seen:
            training.refuse(self.inner, "gradients are never set to zero")

        returns = self.quiet.returns_to_training or _sets_train(training)
        if self.quiet.evaluates and not returns:
            training.refuse(
                training.outer or self.inner,
                "the network stays in the mode for evaluation after the first",
            )

        if not training.uncarried:
            counted = ast.Module(self._counted([self.loops[0]]), [])
            training.count = ast.fix_missing_locations(counted)

    # -- the loss

    def _objective(self) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Sets the statements of the loss; the other statements before and after them."""
        kept, needed, before, after = self._loss_block(self.inner.body)
        training = self.training
        outside = needed - names_in([training.batch]) - {training.module}
        for name in sorted(outside & self.changed):
            line: ast.AST = self.inner
            for node in nodes_of(ast.Name, *kept):
                if node.id == name:
                    line = node
                    break
            why = "is carried from one step to the next"
            if name in self.counters:
                why = "counts steps"
            training.refuse(line, f"the loss depends on {name}, which {why}")

        if self.training.optimizer in outside:
            training.refuse(self.inner, f"the loss depends on {training.optimizer}")
        training.objective = kept
        return before, after

    def _loss_block(
        self, block: Statements
    ) -> tuple[list[ast.stmt], set[str], list[ast.stmt], list[ast.stmt]]:
        place = [has_backward(each) for each in block].index(True)
        last, before, after = block[place], list[ast.stmt](), list(block[place + 1 :])
        match last:
            case ast.Expr(ast.Call(ast.Attribute(loss, "backward"), [], keywords)) if all(
                keyword.arg == "retain_graph" for keyword in keywords
            ):
                kept: list[ast.stmt] = [ast.copy_location(ast.Return(loss), last)]
                needed = names_in([loss])
            case ast.With():
                inside, needed, before, inner_after = self._loss_block(last.body)
                kept = [ast.copy_location(ast.With(last.items, inside), last)]
                needed |= names_in([item.context_expr for item in last.items])
                after = [*inner_after, *after]
            case _:
                self.training.refuse(
                    last,
                    "backward() is called in an expression, with arguments or only in some cases",
                )
                return [], set(), [], []

        earlier, needed, dropped = self._needed_of(block[:place], needed)
        return [*earlier, *kept], needed, [*dropped, *before], after

    def _needed_of(
        self, block: Statements, needed: set[str]
    ) -> tuple[list[ast.stmt], set[str], list[ast.stmt]]:
        """The statements of a block on which names depend, the names that they need, and the other
        statements.
        """
        kept: list[ast.stmt] = []
        dropped: list[ast.stmt] = []
        trained = {self.training.module, self.training.optimizer}
        for statement in reversed(block):
            if isinstance(statement, ast.With):
                inside, after, left = self._needed_of(statement.body, needed)
                dropped[:0] = left
                if inside:
                    kept.insert(0, ast.copy_location(ast.With(statement.items, inside), statement))
                    needed = after | names_in([item.context_expr for item in statement.items])
                continue

            writes = names_set([statement]) | (names_changed(statement) - trained)
            is_role = self._role(statement) != ""
            if isinstance(statement, ast.Expr) and not is_role:
                is_role = self.quiet.allows(statement, needed)
            if not writes & needed or is_role:
                dropped.insert(0, statement)
                continue

            kept.insert(0, statement)
            targets = statement.targets if isinstance(statement, ast.Assign) else [None]
            if all(isinstance(each, ast.Name | ast.Tuple) for each in targets):
                needed = needed - names_set([statement])
            needed = needed | names_read(statement)

        return kept, needed, dropped

    # -- everything else

    def _role(self, statement: ast.stmt) -> str:
        """The use of a statement for a trainer: a `step`, one of the `schedule`, `zero` of
        gradients, `clip`, or an `epoch` that a sampler gets.
        """
        training = self.training
        call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
        if not isinstance(call, ast.Call):
            return ""

        method, owner = method_of(call), names_in([call.func])
        if method == "clip_grad_norm_":
            return "clip"
        if isinstance(statement, ast.Assign):
            return ""
        if method == "step" and len(owner) == 1 and not call.args and not call.keywords:
            return {training.optimizer: "step", training.scheduler: "schedule"}.get(min(owner), "")

        if method == "set_epoch" and len(call.args) == 1 and self._is_counted(call.args[0]):
            return "epoch"
        is_zero = method == "zero_grad" and owner <= {training.module, training.optimizer}
        return "zero" if is_zero else ""

    def _sort(self, statement: ast.stmt, roles: set[str]) -> None:
        """Notes the role of a statement, or the line if it has none and may change the training."""
        training, role = self.training, self._role(statement)
        if role in roles:
            if role == "clip":
                (call,) = (
                    call
                    for call in nodes_of(ast.Call, statement)
                    if method_of(call) == "clip_grad_norm_"
                )
                given = {key.arg: key.value for key in call.keywords}
                norm = call.args[1] if len(call.args) > 1 else given.pop("max_norm", None)
                clipped = ast.unparse(call.args[0]) if call.args else ""
                parameters = f"{self.training.module}.parameters()"

                is_odd = len(call.args) > 2 or given.keys() - {"max_norm"} or self.training.clip
                if norm is None or clipped != parameters or is_odd:
                    self.training.refuse(
                        statement, f"clip_norm clips {parameters} as a whole, once a step"
                    )
                elif names_in([norm]) & self.changed:
                    self.training.refuse(statement, "the largest norm changes during the training")

                self.training.clip = norm
            self.seen.add(role)
            return

        if isinstance(statement, ast.Break) or self._is_quiet(statement):
            return
        if isinstance(statement, ast.If) and self._is_counted(statement.test):
            for inner in (*statement.body, *statement.orelse):
                self._sort(inner, roles)
            return
        first, *more = ast.unparse(statement).splitlines()
        shown = first[:60] + (" ..." if more or len(first) > 60 else "")
        reason = f"not known to leave the training as it is: {shown}"
        if isinstance(statement, ast.If) and nodes_of(ast.Break, statement):
            reason = (
                f"ends the training by what it has computed: {shown}; a trainer takes as many steps "
                "as its job says: leave this out, and choose among the weights that it saves"
            )
        training.refuse(statement, reason)

    def _is_quiet(self, statement: ast.stmt) -> bool:
        leaving = (ast.Break, ast.Return, ast.Continue)
        if any(isinstance(node, leaving) for node in own_nodes(statement)):
            return False

        protected = {self.training.module, self.training.optimizer, self.training.scheduler} - {""}
        for kept in self.training.objective:
            protected |= names_read(kept) - self.changed
        protected |= names_in([self.training.loader])
        return self.quiet.allows(statement, protected)

    # -- how many steps

    def _counters(self) -> set[str]:
        """Names whose values depend on how often the loops have run, and on nothing else."""
        targets = [loop.target for loop in self.loops[:-1] if isinstance(loop, ast.For)]
        indices = {node.id for node in nodes_of(ast.Name, *targets)}
        if self.is_numbered and isinstance(self.inner.target, ast.Tuple):
            indices |= names_in([self.inner.target.elts[0]])

        stores: list[ast.stmt] = []
        for node in ast.walk(self.loops[0]):
            if isinstance(node, _GIVES_VALUES):
                stores.append(node)
                indices |= names_set([node])

        candidates = indices - names_in([self.training.batch])
        while True:
            wrong = set[str]()
            for store in stores:
                depends = names_read(store) & (self.changed - candidates)
                if depends or nodes_of(ast.Call, store):
                    wrong |= names_set([store])
            if not wrong & candidates:
                return candidates
            candidates -= wrong

    def _is_counted(self, test: ast.expr) -> bool:
        source, calls = self.training.source, nodes_of(ast.Call, test)
        lengths = all(is_call_of(source, call, "len", "min", "max", "int") for call in calls)
        return lengths and not names_in([test]) & (self.changed - self.counters)

    def _counted(self, block: Statements) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for statement in block:
            role = self._role(statement)
            is_store = isinstance(statement, _GIVES_VALUES)
            if role in ("step", "schedule"):
                statements.append(_mark(role, statement))
            elif role == "epoch":
                (call,) = (
                    call for call in nodes_of(ast.Call, statement) if method_of(call) == "set_epoch"
                )
                assert isinstance(call.func, ast.Attribute)
                statements.append(_mark(role, statement, call.func.value, call.args[0]))
            elif isinstance(statement, LoopStatement) and has_backward(statement):
                statements.append(self._counted_loop(statement))
            elif isinstance(statement, ast.If) and self._is_counted(statement.test):
                body, orelse = self._counted(statement.body), self._counted(statement.orelse)
                if body or orelse:
                    choice = ast.If(statement.test, body or [ast.Pass()], orelse)
                    statements.append(ast.copy_location(choice, statement))
            elif isinstance(statement, ast.Break) or (
                is_store and names_set([statement]) <= self.counters
            ):
                statements.append(statement)

        return statements

    def _counted_loop(self, loop: LoopStatement) -> ast.stmt:
        source, body = self.training.source, self._counted(loop.body)
        filled = body or [ast.Pass()]
        if isinstance(loop, ast.While):
            return ast.copy_location(ast.While(loop.test, filled, []), loop)

        if loop is not self.inner:
            plain = loop.iter
            while is_call_of(source, plain, "tqdm", "trange", "resuming"):
                assert isinstance(plain, ast.Call)
                within = plain.args[0]
                if method_of(plain) == "trange":
                    within = ast.Call(ast.Name("range", ast.Load()), plain.args, [])
                plain = within
            return ast.copy_location(ast.For(loop.target, plain, filled, []), loop)

        number = ast.Name("_batches", ast.Load())
        marked = ast.Call(ast.Name("mark", ast.Load()), [ast.Constant("begin")], [])
        every = ast.Call(ast.Name("range", ast.Load()), [number], [])
        batches: ast.expr = ast.BoolOp(ast.Or(), [marked, every])
        target: ast.expr = ast.Name("_batch", ast.Store())
        if self.is_numbered and isinstance(loop.target, ast.Tuple):
            numbered = loop.iter
            assert isinstance(numbered, ast.Call)
            batches = ast.Call(numbered.func, [batches, *numbered.args[1:]], numbered.keywords)
            target = ast.Tuple([loop.target.elts[0], target], ast.Store())

        counted = ast.For(target, batches, [_mark("batch", loop), *body], [])
        return ast.copy_location(counted, loop)


class QuietCode:
    """Statements that leave network, optimizer, schedule and data as they are: they show, measure,
    evaluate, store.
    """

    def __init__(self, training: ScriptTraining) -> None:
        self._training, self._source = training, training.source
        self._open: set[str] = set()
        self.evaluates = self.returns_to_training = self._evaluating = False
        self._values: dict[str, list[ast.expr]] = {}

        for each in (
            *training.setup,
            *([] if training.outer is None else ast.walk(training.outer)),
        ):
            if isinstance(each, ast.Assign):
                for name in names_set([each]):
                    self._values.setdefault(name, []).append(each.value)

    def allows(self, statement: ast.stmt, protected: set[str]) -> bool:
        """Whether a statement changes nothing but names that are not `protected`."""
        if names_set([statement]) & protected or not self._stores_in_containers(statement):
            return False
        if any(
            isinstance(node, ast.Delete | ast.Yield | ast.Await) for node in ast.walk(statement)
        ):
            return False
        calls = nodes_of(ast.Call, statement)
        modes = [call for call in calls if method_of(call) in ("eval", "train")]
        evaluated = self._evaluating or any(method_of(call) == "eval" for call in modes)
        if modes:
            last = max(modes, key=attrgetter("lineno"))
            self._evaluating = method_of(last) == "eval"
        return all(self._allows_call(call, evaluated, protected) for call in calls)

    def _stores_in_containers(self, root: ast.AST) -> bool:
        """Whether parts are set of lists, dicts and sets only."""
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return False
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Store)
                and not self._is_container(node.value)
            ):
                return False
        return True

    def _is_container(self, node: ast.expr) -> bool:
        displays = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
        values = self._values.get(node.id, []) if isinstance(node, ast.Name) else []
        for value in values:
            makes = isinstance(value, ast.Call) and method_of(value) in _CONTAINERS
            if not makes and not isinstance(value, displays):
                return False
        return bool(values)

    # Kinds of calls.
    def _allows_call(self, call: ast.Call, evaluated: bool, protected: set[str]) -> bool:  # noqa: PLR0911
        name, method, module = self._source.called(call), method_of(call), self._training.module
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if method == "eval":
            self.evaluates = True
            if not isinstance(owner, ast.Name):
                # A part of the network that stays in this mode trains without dropout.
                return False

        if method == "train":
            self.returns_to_training = self.returns_to_training or self.evaluates
            return not call.args and not call.keywords
        if owner is None and name in self._source.functions:
            return self._allows_function(self._source.functions[name])
        if name == module or (owner is None and evaluated):
            return evaluated
        if name.startswith("torch.") or QUIET.search(name):
            return not _TORCH_EFFECTS.search(name)

        made = [
            self._source.called(value)
            for value in self._values.get(name.partition(".")[0], [])
            if isinstance(value, ast.Call)
        ]

        if any(
            QUIET.search(function) or function.endswith(("SummaryWriter", "getLogger"))
            for function in made
        ):
            return True
        if owner is None:
            return any(function.startswith("torch.nn.") for function in made)
        if method in _CHANGING_METHODS:
            return self._is_container(owner) and not names_in([owner]) & protected

        moves = (
            isinstance(owner, ast.Name)
            and owner.id == module
            and method in ("to", "cpu", "cuda", "float", "double")
        )

        return method in _QUIET_METHODS and not moves

    def _allows_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        if function.name in self._open:
            return True

        self._open.add(function.name)
        evaluated = any(method_of(call) == "eval" for call in nodes_of(ast.Call, *function.body))
        modes = [
            call
            for call in nodes_of(ast.Call, *function.body)
            if method_of(call) in ("eval", "train")
        ]
        try:
            if names_set(function.body) & globals_of(function):
                return False
            for each in ast.walk(function):
                if isinstance(each, ast.Assign):
                    for name in names_set([each]):
                        self._values.setdefault(name, []).append(each.value)
            quiet = all(
                self._allows_call(call, evaluated, set())
                for call in nodes_of(ast.Call, *function.body)
            )
            return quiet and self._stores_in_containers(function)
        finally:
            self._open.discard(function.name)
            if modes:
                last = max(modes, key=attrgetter("lineno"))
                self.returns_to_training = method_of(last) == "train"


def slice_of(
    training: ScriptTraining, names: Iterable[str], given: Iterable[str] = ()
) -> list[ast.stmt]:
    """The statements before the loop that names depend on, in order; `given` names are not looked
    for.
    """
    needed, left = {*names}, {*given}
    quiet = QuietCode(training) if training.module else None
    imported = names_set(
        each
        for each in training.setup
        if isinstance(each, ast.Import | ast.ImportFrom | Definition)
    )

    kept: list[ast.stmt] = []
    parts_of = _parts_of_objects(training)
    for statement in reversed(training.setup):
        writes, reached = names_set([statement]), names_changed(statement) - imported
        while (
            more := {owner for name in reached for owner in parts_of.get(name, ())}
            - reached
            - imported
        ):
            reached |= more
        if not ((writes | reached) & needed) - left:
            continue
        if isinstance(statement, ast.Expr | ast.For | ast.With) and quiet is not None:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                called = training.source.called(statement.value)
            else:
                called = ""
            if (
                SEEDS.search(called)
                or called.endswith(".zero_grad")
                or quiet.allows(statement, needed - left)
            ):
                continue
        kept.insert(0, statement)
        needed |= (
            names_read(statement)
            - left
            - (names_in([statement.target]) if isinstance(statement, ast.For) else set())
        )

    return kept


def _parts_of_objects(training: ScriptTraining) -> dict[str, set[str]]:
    """The objects that may contain a name's value, by name: `model` for `head` in `head =
    model.head`.
    """
    owners: dict[str, set[str]] = {}
    for statement in training.setup:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and not isinstance(statement, Definition):
                for name in names_set([node]) - {training.optimizer, training.scheduler}:
                    owners.setdefault(name, set()).update(names_in([node.value]))
            elif isinstance(node, ast.For) and not isinstance(statement, Definition):
                for name in names_in([node.target]):
                    owners.setdefault(name, set()).update(names_in([node.iter]))

    return owners


def _mark(role: str, place: ast.AST, *values: ast.expr) -> ast.stmt:
    call = ast.Call(ast.Name("mark", ast.Load()), [ast.Constant(role), *values], [])
    return ast.copy_location(ast.Expr(call), place)
