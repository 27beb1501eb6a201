"""The arguments of a script's command line, as argparse, click, typer, fire or the Hugging Face parser define them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from spotctl.files.script.source import ScriptSource


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: how it is written (`--save-dir`, or a positional's name), and the name that holds its value."""

    flag: str
    name: str
    default: object = None
    required: bool = False
    is_switch: bool = False

    @property
    def is_positional(self) -> bool:
        return not self.flag.startswith("-")

    def given(self, value: str) -> str:
        """The words that give the argument a value on a command line."""
        if self.is_switch:
            return self.flag
        return value if self.is_positional else f"{self.flag} {value}"


def arguments_of(source: ScriptSource) -> tuple[Argument, ...]:
    """All arguments, in the order of the script; the first definition of a name counts."""
    arguments: dict[str, Argument] = {}
    for argument in (*_declared(source), *_of_functions(source), *_of_dataclasses(source)):
        arguments.setdefault(argument.name, argument)
    return tuple(arguments.values())


def _declared(source: ScriptSource) -> Iterator[Argument]:
    """Arguments of argparse and of click, which are declared by calls."""
    for call in source.calls:
        name = source.called(call)
        words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        if not words:
            continue
        if name.endswith(".add_argument"):
            yield _argument(words, call, is_positional=not words[0].startswith("-"))
        elif name in ("click.option", "click.argument"):
            yield _argument(words, call, is_positional=name == "click.argument")


def _argument(words: list[str], call: ast.Call, *, is_positional: bool) -> Argument:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    flags = [word for word in words if word.startswith("-")] or words
    flag = max(flags, key=lambda word: (word.startswith("--"), len(word))).partition("/")[0]
    name = _text(given.get("dest")) or next((word for word in words if word.isidentifier()), flag)
    default = _constant(given.get("default"))
    optional = _text(given.get("nargs")) in ("?", "*") or "default" in given
    required = _constant(given.get("required")) is True or (is_positional and not optional)
    is_switch = _text(given.get("action")) == "store_true" or _constant(given.get("is_flag")) is True
    return Argument(flag, name.lstrip("-").replace("-", "_"), default, required, is_switch)


def _of_functions(source: ScriptSource) -> Iterator[Argument]:
    """Parameters of the functions that typer and fire make a command of."""
    names = command_functions(source)
    for function in source.functions.values():
        decorators = (
            decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in function.decorator_list
        )
        is_typer = "typer" in source.text and any(source.dotted(item).endswith(".command") for item in decorators)
        if function.name in names or (is_typer and "click" not in source.aliases.values()):
            yield from _of_parameters(function)


def command_functions(source: ScriptSource) -> set[str]:
    """The functions that a call of typer or fire makes a command of."""
    made = (call.args[0] for call in source.calls if source.called(call) in ("typer.run", "fire.Fire") and call.args)
    return {function.id for function in made if isinstance(function, ast.Name)}


def _of_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Argument]:
    known = function.args
    ordered = [*known.posonlyargs, *known.args]
    defaults = [None] * (len(ordered) - len(known.defaults)) + list(known.defaults)
    for parameter, given in (
        *zip(ordered, defaults, strict=True),
        *zip(known.kwonlyargs, known.kw_defaults, strict=True),
    ):
        # typer.Option(default, ...), where an ellipsis stands for none.
        default = next(iter(given.args), None) if isinstance(given, ast.Call) else given
        missing = default is None or _constant(default) is ...
        flag = parameter.arg if missing else f"--{parameter.arg.replace('_', '-')}"
        yield Argument(flag, parameter.arg, None if missing else _constant(default), missing)


def _of_dataclasses(source: ScriptSource) -> Iterator[Argument]:
    """Fields of the dataclasses that an `HfArgumentParser` of transformers is given."""
    parsers = [call for call in source.calls if source.called(call).endswith("HfArgumentParser")]
    parsed = {node.id for parser in parsers for node in ast.walk(parser) if isinstance(node, ast.Name)}
    if "TrainingArguments" in parsed or "Seq2SeqTrainingArguments" in parsed:
        yield Argument("--output_dir", "output_dir", "trainer_output")
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in parsed:
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                default, missing = _field_default(field.value)
                yield Argument(f"--{field.target.id}", field.target.id, default, missing)


def _field_default(value: ast.expr | None) -> tuple[object, bool]:
    if not isinstance(value, ast.Call):
        return _constant(value), value is None
    given = {keyword.arg: keyword.value for keyword in value.keywords}
    return _constant(given.get("default")), not given.keys() & {"default", "default_factory"}


def _constant(node: ast.AST | None) -> object:
    try:
        return ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _text(node: ast.AST | None) -> str:
    value = _constant(node)
    return value if isinstance(value, str) else ""
