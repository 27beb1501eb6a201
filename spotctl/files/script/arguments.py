"""Arguments of a script: flags of its command line, settings that words override, and variables
that it reads.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from spotctl.files.script.source import ScriptSource, nodes_of, option_of, read_source
from spotctl.files.yaml_file import parse
from spotctl.home.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: how it is written (`--save-dir`, `resume=`, or a positional's name), and the
    name that holds its value.

    A variable of the environment that the script reads is one, too, which is written before the
    command.
    """

    flag: str
    name: str
    default: object = None
    required: bool = False
    is_switch: bool = False
    is_variable: bool = False
    choices: tuple[object, ...] = ()

    @property
    def is_positional(self) -> bool:
        return not self.flag.startswith("-") and not self.flag.endswith("=")

    def given(self, value: str) -> str:
        """The words that give the argument a value on a command line."""
        if self.is_switch:
            return self.flag
        if self.is_positional or self.flag.endswith("="):
            return value if self.is_positional else f"{self.flag}{value}"
        return f"{self.flag} {value}"


def arguments_of(source: ScriptSource) -> dict[str, Argument]:
    """All arguments by their names, in the order of the script; the first definition counts."""
    arguments: dict[str, Argument] = {}
    # Many scripts have the arguments in a module of their own. Those of a module that can be run
    # itself are others.
    declared = [*_declared(source)]
    for node in nodes_of(ast.ImportFrom, source.tree):
        path = source.path.parent / f"{(node.module or '').replace('.', '/')}.py"
        with suppress(BadRequest):
            module = read_source(path) if path.is_file() else None
            if module is not None and not re.search(r"^if __name__ ==", module.text, re.MULTILINE):
                declared += _declared(module)

    for argument in (
        *declared,
        *_of_functions(source),
        *_of_dataclasses(source),
        *_of_overrides(source),
        *_of_environment(source),
    ):
        arguments.setdefault(argument.name, argument)

    return arguments


def _declared(source: ScriptSource) -> Iterator[Argument]:
    """Arguments of argparse and of click, which are declared by calls."""
    for call in source.calls:
        name = source.called(call)
        words = [
            word.value
            for word in call.args
            if isinstance(word, ast.Constant) and isinstance(word.value, str)
        ]
        if not words:
            continue
        if name.endswith(".add_argument"):
            yield _argument(words, call, is_positional=not words[0].startswith("-"))
        elif name in ("click.option", "click.argument"):
            yield _argument(words, call, is_positional=name == "click.argument")


def _argument(words: list[str], call: ast.Call, *, is_positional: bool) -> Argument:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    flags = [word for word in words if word.startswith("-")] or words
    long_flags = [word for word in flags if word.startswith("--")]
    flag = max(long_flags or flags, key=len).partition("/")[0]
    named = [word for word in words if word.isidentifier()] or [flag]
    name = str(_constant(given.get("dest")) or named[0])
    default = _constant(given.get("default"))

    is_optional = "default" in given or _constant(given.get("nargs")) in ("?", "*")
    is_demanded = _constant(given.get("required")) is True
    required = is_demanded or (is_positional and not is_optional)

    # click writes `--resume/--fresh`.
    is_pair = default is not True and any("/" in word for word in flags)
    is_flag = _constant(given.get("is_flag")) is True
    is_stored = _constant(given.get("action")) == "store_true"
    is_switch = is_stored or is_flag or is_pair

    python_name = name.lstrip("-").replace("-", "_")
    choices = _constant(given.get("choices"))
    chosen = tuple(choices) if isinstance(choices, list | tuple) else ()
    return Argument(flag, python_name, default, required, is_switch, choices=chosen)


def _of_functions(source: ScriptSource) -> Iterator[Argument]:
    """Parameters of the functions that typer and fire make a command of."""
    commands = list[ast.expr]()
    for call in source.calls:
        if source.called(call) in ("typer.run", "fire.Fire"):
            for command in call.args[:1]:
                commands += command.values if isinstance(command, ast.Dict) else [command]
    names = {command.id for command in commands if isinstance(command, ast.Name)}

    uses_typer = "typer" in source.text and "click" not in source.aliases.values()
    for function in source.functions.values():
        is_command = function.name in names
        for decorator in function.decorator_list:
            marker = decorator.func if isinstance(decorator, ast.Call) else decorator
            is_command |= uses_typer and source.dotted(marker).endswith(".command")
        if not is_command:
            continue

        known = function.args
        ordered = [*known.posonlyargs, *known.args]
        without = len(ordered) - len(known.defaults)
        defaults = [*[None] * without, *known.defaults]
        parameters = [*ordered, *known.kwonlyargs]
        for parameter, given in zip(parameters, [*defaults, *known.kw_defaults], strict=True):
            # typer.Option(default, ...), where an ellipsis stands for none.
            default = given
            if isinstance(given, ast.Call):
                default = given.args[0] if given.args else None
            missing = default is None or _constant(default) is ...
            flag = parameter.arg if missing else f"--{parameter.arg.replace('_', '-')}"
            value = None if missing else _constant(default)
            # typer makes `--resume/--no-resume` of it, and fire takes both forms.
            yield Argument(flag, parameter.arg, value, missing, is_switch=value is False)


def _of_dataclasses(source: ScriptSource) -> Iterator[Argument]:
    """Fields of the dataclasses that an `HfArgumentParser` of transformers is given."""
    parsers = [call for call in source.calls if source.called(call).endswith("HfArgumentParser")]
    parsed = {node.id for node in nodes_of(ast.Name, *parsers)}
    if "TrainingArguments" in parsed or "Seq2SeqTrainingArguments" in parsed:
        yield Argument("--output_dir", "output_dir", "trainer_output")

    fields = list[ast.stmt]()
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and node.name in parsed:
            fields += node.body

    for field in fields:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            name, value, missing = field.target.id, field.value, field.value is None
            if isinstance(value, ast.Call):
                missing = option_of(value, "default", "default_factory") is None
                value = option_of(value, "default")
            yield Argument(f"--{name}", name, _constant(value), missing)


_OVERRIDING = re.compile(r"""\.(split|partition)\(["']=["']|\.from_cli\(|hydra\.main\(""")
"""Scripts that take words such as `resume=latest`."""


def _of_overrides(source: ScriptSource) -> Iterator[Argument]:
    """Settings that words of the command line override: in dicts and names that the script assigns
    at its top, and in the YAML files in its folder whose names it has.
    """
    constants = [node.value for node in source.nodes if isinstance(node, ast.Constant)]
    words = [value for value in constants if isinstance(value, str)]
    assignments = [node for node in source.tree.body if isinstance(node, ast.Assign)]
    # A file that it runs may take words such as `--init_from=resume` for names of its own.
    for node in assignments if "exec(open(" in source.text else ():
        name, value = node.targets[0], _constant(node.value)
        if isinstance(name, ast.Name) and isinstance(value, str | int | float):
            yield Argument(f"--{name.id}=", name.id, value)
    if not _OVERRIDING.search(source.text) or "--" in "".join(words):
        return

    assigned = [node.value for node in assignments]
    settings = [*map(_constant, assigned)]

    folder = source.path.resolve().parent
    for path in sorted(folder.glob("*.y*ml")) + sorted(folder.glob("*/*.y*ml")):
        names = {path.name, path.stem, str(path.relative_to(folder))}
        if not names.isdisjoint(words):
            with suppress(BadRequest):
                settings.append(parse(path.read_text("utf-8", "replace"), path).content)

    for part in settings:
        for name, default in part.items() if isinstance(part, dict) else ():
            if isinstance(default, dict):
                for inner, value in default.items():
                    yield Argument(f"{name}.{inner}=", str(inner), value)
            else:
                yield Argument(f"{name}=", str(name), default)


_OF_OTHERS = re.compile(
    r"(SPOTCTL|OUTPUT|DATA|SLURM|CUDA|NCCL|OMP|MKL|OPENBLAS|HF|WANDB|AWS|AZURE|GOOGLE|MASTER|TORCH\w*)_"
    r"|(LOCAL_|GROUP_)?RANK$|(LOCAL_)?WORLD_SIZE$|HOME$|USER$|PATH$|TMPDIR$|HOSTNAME$"
)
"""Variables that spotctl, schedulers and libraries set."""


def _of_environment(source: ScriptSource) -> Iterator[Argument]:
    """Variables of the environment that the script reads."""
    reads: list[tuple[ast.expr, ast.expr | None]] = []
    for node in source.nodes:
        match node:
            case ast.Call(args=[name, *rest]) if source.called(node) in (
                "os.environ.get",
                "os.getenv",
            ):
                reads.append((name, rest[0] if rest else None))
            case ast.Subscript(value=holder, slice=name) if source.dotted(holder) == "os.environ":
                reads.append((name, None))
            case ast.Compare(left=name, ops=[ast.In()], comparators=[holder]) if (
                source.dotted(holder) == "os.environ"
            ):
                reads.append((name, None))

    for name, default in reads:
        variable = str(_constant(name))
        if (
            isinstance(_constant(name), str)
            and variable.isidentifier()
            and not _OF_OTHERS.match(variable)
        ):
            yield Argument(f"{variable}=", variable, _constant(default), is_variable=True)


def _constant(node: ast.AST | None) -> object:
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
