"""A trainer's skeleton (`TorchModule`) from the network, optimizer, loss and dataset that a script names."""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spotctl.files.script.job_text import ScriptAnswers, job_name
from spotctl.files.script.reading import TrainingScript
from spotctl.files.script.source import ScriptSource
from spotctl.home.errors import BadRequest

_OPTIMIZER = re.compile(r"(^|\.)(optim\.\w+|SGD|Adam\w*|RMSprop|Adagrad|Adadelta|LBFGS)$")
_LOSS = re.compile(r"loss|cross_entropy|NLL|MSE|BCE", re.IGNORECASE)
_WRAPPERS = ("to", "cuda", "train", "half", "float")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the script's code, and its line."""

    code: str
    line: int
    names: frozenset[str] = frozenset()


def skeleton_of(script: TrainingScript) -> tuple[str, list[str]]:
    """The text of a trainer's file, and the names in it that only a person can give a value.

    BadRequest for a script without a network of PyTorch.
    """
    source = script.source
    network, optimizer = _network(source), _first_call(source, _OPTIMIZER)
    if network is None:
        raise BadRequest(f"{source.path}: --trainer needs a torch.nn.Module, and the script makes none")
    parts = {"network": network, "dataset": _dataset(source), "optimizer": optimizer, "loss": _loss(source)}
    used = {name for part in parts.values() if part is not None for name in part.names}
    # Functions and classes that the script defines at its top, and its imports of names that the parts use.
    own = sorted(used & {node.name for node in source.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)})
    lines_of_imports = [source.code(node) for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = [line for line in lines_of_imports if _bound([line]) & used]
    values = _values_to_set(script, used - {*own, *_bound(imports), *dir(builtins)}, parts)

    warning = []
    if own and script.loop is not None and isinstance(script.loop.scope, ast.Module):
        warning = [f'# Importing {script.path} runs it: move what trains there below `if __name__ == "__main__":`.']
    loss = parts["loss"]
    loss_code = "nn.functional.cross_entropy" if loss is None else loss.code
    loss_place = "the mean loss of the batch" if loss is None else f"line {loss.line} of {script.path}"
    lines = [
        f'"""The trainer of {script.path}, by spotctl init: machines may join and leave while it trains."""',
        "",
        *(
            ["from types import SimpleNamespace", ""]
            if any("SimpleNamespace" in value for value in values.values())
            else []
        ),
        *imports,
        *([] if "nn" in _bound(imports) else ["from torch import nn"]),
        "",
        "from agileml.torch import TorchModule",
        *warning,
        *([f"from {script.path.stem} import {', '.join(own)}"] if own else []),
        *(["", *(f"{name} = {value}" for name, value in values.items())] if values else []),
        *_function("network", "", parts["network"], script),
        *_function("dataset", "", parts["dataset"], script),
        *("", "", "def objective(net, batch):", "    inputs, targets = batch"),
        f"    return {loss_code}(net(inputs), targets)  # {loss_place}",
        *_function("optimizer", "net", parts["optimizer"], script),
        *("", "", "def trainer():", "    return TorchModule(network, dataset, objective, optimizer)"),
    ]
    missing = [name for name, value in values.items() if value.startswith("...")]
    return "\n".join(lines) + "\n", [*missing, *(name for name, part in parts.items() if part is None)]


def _values_to_set(script: TrainingScript, names: set[str], parts: Mapping[str, Part | None]) -> dict[str, str]:
    """Values for names that the parts use: the defaults of the script's arguments, or none."""
    code = "\n".join(part.code for part in parts.values() if part is not None)
    values: dict[str, str] = {}
    for name in sorted(names):
        read = sorted(set(re.findall(rf"\b{name}\.(\w+)", code)))
        arguments = [script.by_name[word] for word in read if word in script.by_name]
        if read and len(arguments) == len(read) and not any(argument.required for argument in arguments):
            defaults = ", ".join(f"{argument.name}={argument.default!r}" for argument in arguments)
            values[name] = f"SimpleNamespace({defaults})  # defaults of the arguments of {script.path}"
        else:
            values[name] = f"...  # set this: a value of {script.path}"
    return values


def trainer_job_text(script: TrainingScript, answers: ScriptAnswers, module: str) -> str:
    """The job file of a trainer."""
    lines = [
        f"# Written by spotctl init {script.path} --trainer, which has read the script and not run it.",
        "",
        f"name: {job_name(script)}",
        "kind: agileml # loses no work when machines are evicted",
        f"app: {module}:trainer",
        "stop: {clocks: 1000} # training steps: one clock is one batch",
        "budget: 25 USD # hard limit",
        "",
        "resources:",
        f"  clouds: [{answers.cloud}] # or local, aws, gcp, azure",
        "  types: [c4.2xlarge]" if answers.is_local else "  types: {vcpus: 4..16, memory_gib: 8..64}",
        "  machines: 2..4 # spot machines",
        "  reliable: {machines: 1} # on demand; it keeps the model",
    ]
    return "\n".join([*lines, *(["local: {speed: 120}"] if answers.is_local else [])]) + "\n"


def _function(name: str, parameter: str, part: Part | None, script: TrainingScript) -> Iterator[str]:
    yield from ("", "", f"def {name}({parameter}):")
    if part is None:
        yield f"    raise NotImplementedError  # {script.path} names no {name} that could be recognized"
        return
    yield f"    # line {part.line} of {script.path}"
    yield f"    return {part.code}"


def _part(source: ScriptSource, node: ast.expr) -> Part:
    code = " ".join(line.strip() for line in source.code(node).splitlines())
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return Part(code, node.lineno, frozenset(names))


def _values(source: ScriptSource, name: str) -> list[ast.expr]:
    assigned = [node for node in source.nodes if isinstance(node, ast.Assign)]
    return [
        node.value
        for node in assigned
        if any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]


def _network(source: ScriptSource) -> Part | None:
    """The first network whose parameters the script names, or the first module class that it defines."""
    for call in source.calls:
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "parameters"
            and isinstance(call.func.value, ast.Name)
        ):
            for value in _values(source, call.func.value.id):
                return _part(source, _unwrapped(value))
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any(source.dotted(base).endswith("nn.Module") for base in node.bases):
            return Part(f"{node.name}()", node.lineno, frozenset({node.name}))
    return None


def _unwrapped(value: ast.expr) -> ast.expr:
    """`Net()` of `Net().to(device)`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _WRAPPERS:
        if isinstance(value.func.value, ast.Name):
            break
        value = value.func.value
    return value


def _first_call(source: ScriptSource, pattern: re.Pattern[str]) -> Part | None:
    call = next((call for call in source.calls if pattern.search(source.called(call)) and call.args), None)
    if call is None:
        return None
    part, first = _part(source, call), source.code(call.args[0])
    owner = re.match(r"\w+", first)
    if owner is None:
        return part
    code = part.code.replace(f"({first}", f"(net{first[owner.end() :]}", 1)
    return Part(code, part.line, part.names - {owner[0]})


def _dataset(source: ScriptSource) -> Part | None:
    """The dataset of the first loader, preferably of one for training."""
    loaders = [call for call in source.calls if source.called(call).endswith("DataLoader") and call.args]
    loaders.sort(key=lambda call: "train" not in source.code(call))
    for loader in loaders:
        dataset = loader.args[0]
        values = _values(source, dataset.id) if isinstance(dataset, ast.Name) else [dataset]
        if values:
            return _part(source, values[0])
    return None


def _loss(source: ScriptSource) -> Part | None:
    """The function that computes the loss: `F.nll_loss`, or the module that `criterion` is."""
    for node in source.nodes:
        if not (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and source.code(node.targets[0]) == "loss"
        ):
            continue
        function = node.value.func
        values = _values(source, function.id) if isinstance(function, ast.Name) else []
        if values:
            return _part(source, _unwrapped(values[0]))
        if _LOSS.search(source.dotted(function)):
            return _part(source, function)
    return None


def _bound(imports: Sequence[str]) -> set[str]:
    nodes = [node for line in imports for node in ast.parse(line).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name.partition(".")[0] for node in nodes for alias in node.names}
