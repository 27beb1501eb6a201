"""Where a script saves and loads: calls of its framework that write or read a model or a checkpoint."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from spotctl.files.script.libraries import KERAS, LIGHTNING, TRANSFORMERS
from spotctl.files.script.places import Head, Places, ScriptPlace
from spotctl.files.script.source import ScriptSource

_SAVES: dict[str, tuple[int, str]] = {
    "torch.save": (1, "f"),
    "joblib.dump": (1, "filename"),
    "pickle.dump": (1, "file"),
    "cloudpickle.dump": (1, "file"),
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "shutil.copyfile": (1, "dst"),
    "shutil.copy": (1, "dst"),
}
"""Functions that save: the position and the name of the argument with the path."""
_SAVING_METHODS: dict[str, tuple[int, str]] = {
    "save_pretrained": (0, "save_directory"),
    "save_weights": (0, "filepath"),
    "save_model": (0, "output_dir"),
    "save_state": (0, "output_dir"),
    "save_checkpoint": (0, "filepath"),
}
_LOADS: dict[str, tuple[int, str]] = {
    "torch.load": (0, "f"),
    "joblib.load": (0, "filename"),
    "pickle.load": (0, "file"),
    "cloudpickle.load": (0, "file"),
    "numpy.load": (0, "file"),
}
_LOADING_METHODS: dict[str, tuple[int, str]] = {
    "load_model": (0, "filepath"),
    "load_weights": (0, "filepath"),
    "load_from_checkpoint": (0, "checkpoint_path"),
    "load_state": (0, "input_dir"),
}
OWN = ("resuming", "SpotCallback", "LeaseIterator", "Gang")
"""Tools of spotctl that save and resume."""


@dataclass(frozen=True, slots=True)
class SaveCall:
    """A call that saves or loads, and the path."""

    call: ast.Call
    place: ScriptPlace

    @property
    def line(self) -> int:
        return self.call.lineno


def saves_of(source: ScriptSource, places: Places, framework: str) -> list[SaveCall]:
    """The calls that save, in the order of their lines."""
    methods = _SAVING_METHODS | ({"save": (0, "filepath")} if framework == KERAS else {})
    calls = _matching(
        source, places, _SAVES, {name: at for name, at in methods.items() if name not in source.functions}
    )
    return [*calls, *_of_callbacks(source, places, framework)]


def loads_of(source: ScriptSource, places: Places) -> list[SaveCall]:
    """The calls that load."""
    # The Trainers of Lightning and Hugging Face load by themselves, as the callback of Keras does.
    options = ("ckpt_path", "resume_from_checkpoint")
    given = ((call, keyword) for call in source.calls for keyword in call.keywords if keyword.arg in options)
    restoring = (call for call in source.calls if source.called(call).endswith("BackupAndRestore"))
    return [
        *_matching(source, places, _LOADS, _LOADING_METHODS),
        *(SaveCall(call, places.of(keyword.value)) for call, keyword in given if not _is_nothing(keyword.value)),
        *(SaveCall(call, places.of(_given(call, 0, "backup_dir"))) for call in restoring),
    ]


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def uses_own_tools(source: ScriptSource) -> bool:
    """Whether a script resumes with a tool of spotctl."""
    return any(name.startswith("spotctl.") and name.rpartition(".")[2] in OWN for name in source.aliases.values())


def _matching(
    source: ScriptSource, places: Places, functions: dict[str, tuple[int, str]], methods: dict[str, tuple[int, str]]
) -> Iterator[SaveCall]:
    for call in source.calls:
        name = source.called(call)
        at = functions.get(name)
        if at is None and "." in name:
            at = methods.get(name.rpartition(".")[2])
        if at is not None:
            yield SaveCall(call, places.of(_given(call, *at)))


def _of_callbacks(source: ScriptSource, places: Places, framework: str) -> Iterator[SaveCall]:
    """Folders that a Trainer or a callback saves to by itself."""
    for call in source.calls:
        name = source.called(call).rpartition(".")[2]
        if name == "ModelCheckpoint":
            yield SaveCall(call, places.of(_given(call, 0, "dirpath" if framework == LIGHTNING else "filepath")))
        elif name == "BackupAndRestore" and framework == KERAS:
            yield SaveCall(call, places.of(_given(call, 0, "backup_dir")))
        elif name.endswith("TrainingArguments") and framework == TRANSFORMERS:
            yield SaveCall(call, places.of(_given(call, 0, "output_dir")))


def _given(call: ast.Call, position: int, name: str) -> ast.expr | None:
    value = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if value is None and position < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args):
        return call.args[position]
    return value


def of_machine(place: ScriptPlace) -> bool:
    """Whether a path is one of spotctl's, which outlives a machine."""
    return place.head is Head.VARIABLE and place.name.startswith(("SPOTCTL_", "OUTPUT_"))
