"""The command with which a job runs a script: its arguments, and copies of its results at the end."""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spotctl.files.script.arguments import Argument
from spotctl.files.script.places import Head, ScriptPlace
from spotctl.files.script.reading import RESUMING, TrainingScript
from spotctl.files.script.saves import SaveCall

CHECKPOINTS, RESULTS = '"$SPOTCTL_CHECKPOINT_DIR"', '"$OUTPUT_MODEL"'


@dataclass(frozen=True, slots=True)
class ScriptCommand:
    """A command line, the data that it names, and the arguments that only a person can give."""

    text: str
    data: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    has_results: bool = False


def command_of(script: TrainingScript, python: str) -> ScriptCommand:
    """The command for a script as it is, with the data of this computer that it names by default."""
    data = _outside_data(script)
    given = {
        **_switches(script),
        **_required(script),
        **data_words(data),
        **(_kept_places(script) if script.resumes else {}),
        **_result_places(script),
    }
    words = [
        argument.given(given[argument.name]) for argument in _options_first(script.arguments) if argument.name in given
    ]
    copies = list(_copies(script))
    start = (
        f"{python} -m torch.distributed.run --standalone --nproc-per-node=$SPOTCTL_NPROC_PER_NODE"
        if script.wants_ranks
        else python
    )
    resumption = list(_resumption(script, given)) if script.resumes else []
    text = " && ".join([" ".join([start, shlex.quote(str(script.path)), *words, *resumption]), *copies])
    missing = tuple(given[name] for name in _required(script) if given[name].isupper())
    return ScriptCommand(text, data, missing, RESULTS in text)


def data_words(data: Mapping[str, str]) -> dict[str, str]:
    return {name: f'"$DATA_{name.upper()}"' for name in data}


def _switches(script: TrainingScript) -> dict[str, str]:
    """Switches without which the script does not save its result."""
    tests = [test for save in script.final_saves for test in script.conditions(save)]
    names = {test.attr for test in tests if isinstance(test, ast.Attribute)}
    return {name: "" for name in names if name in script.by_name and script.by_name[name].is_switch}


def _options_first(arguments: Sequence[Argument]) -> list[Argument]:
    """Positionals keep their order."""
    return sorted(arguments, key=lambda argument: not argument.is_positional)


def _required(script: TrainingScript) -> dict[str, str]:
    """Arguments without a default, with a word that stands for their value."""
    return {argument.name: argument.name.upper() for argument in script.arguments if argument.required}


def _kept_places(script: TrainingScript) -> dict[str, str]:
    """Arguments that say where the script saves while it trains."""
    return dict(_argument_places(script, script.repeated_saves, CHECKPOINTS))


def _result_places(script: TrainingScript) -> dict[str, str]:
    """Arguments that say where only the result is saved."""
    used = {save.place.name for save in (*script.repeated_saves, *script.loads)}
    finals = [save for save in script.final_saves if save.place.name not in used]
    # The callback of spotctl keeps checkpoints, so the folder of a Trainer of Hugging Face is a result.
    folder = {name: RESULTS for name in ("output_dir",) if name in script.by_name and script.uses_tools}
    return folder | dict(_argument_places(script, finals, RESULTS))


def _argument_places(script: TrainingScript, saves: Sequence[SaveCall], folder: str) -> Iterator[tuple[str, str]]:
    for place in (save.place for save in saves):
        argument = script.by_name.get(place.name) if place.head is Head.ARGUMENT else None
        if argument is not None:
            yield (
                argument.name,
                folder if _is_folder(place, argument) else f"{folder}/{Path(str(argument.default)).name}",
            )


def _is_folder(place: ScriptPlace, argument: Argument) -> bool:
    return bool(place.tail) or not Path(str(argument.default or "")).suffix


def _resumption(script: TrainingScript, given: Mapping[str, str]) -> Iterator[str]:
    """The argument from which the script resumes, if there is a checkpoint."""
    for place in (load.place for load in script.loads):
        argument = script.by_name.get(place.name) if place.head is Head.ARGUMENT else None
        if argument is None or argument.name in given or not RESUMING.search(argument.name):
            continue
        if isinstance(argument.default, bool):
            yield argument.flag
            return
        files = [saved.place for saved in script.repeated_saves if saved.place.head is not Head.UNKNOWN]
        path = f"{CHECKPOINTS}/{files[0].file or '*'}" if files else f"{CHECKPOINTS}/*"
        if script.checks(place) and "*" not in path:
            yield argument.given(path)
        else:
            yield f"$(ls -dt {path} 2>/dev/null | sed -n '1s/^/{argument.flag} /p')"
        return


def _copies(script: TrainingScript) -> Iterator[str]:
    """Commands that keep what is saved under fixed names of the machine's folder."""
    finals = {name: save for save in script.final_saves if (name := _fixed_name(save.place))}
    if finals:
        copy = f"cp -r {' '.join(map(shlex.quote, sorted(finals)))} {RESULTS}"
        switches = _switches(script)
        tests = (test for save in finals.values() for test in script.conditions(save))
        is_certain = all(isinstance(test, ast.Attribute) and test.attr in switches for test in tests)
        yield copy if is_certain else f"{{ {copy} || true; }}"
    elif script.resumes and not _result_places(script):
        if script.uses_tools and (names := {_fixed_name(save.place) for save in script.repeated_saves} - {""}):
            # spotctl keeps the state of the loop, and not what the script itself saves in it. The last machine may
            # have had no reason to save.
            yield f"{{ cp -r {' '.join(map(shlex.quote, sorted(names)))} {RESULTS} || true; }}"
        yield f"cp -r {CHECKPOINTS}/. {RESULTS}"


def _fixed_name(place: ScriptPlace) -> str:
    name = f"{place.name}{place.tail}"
    is_fixed = place.head is Head.LITERAL and re.fullmatch(r"[\w./-]+", name) is not None
    return name if is_fixed and not name.startswith(("/", "..")) else ""


def _outside_data(script: TrainingScript) -> dict[str, str]:
    """Data of this computer that arguments name by default, and that the job's folder does not contain."""
    data: dict[str, str] = {}
    saved = {save.place.name for save in (*script.saves, *script.loads)}
    for argument in script.arguments:
        text = argument.default
        if not isinstance(text, str) or not re.search(r"[/\w]", text) or argument.name in saved:
            continue
        path = (script.folder / Path(text).expanduser()).resolve()
        if path != script.folder and path.exists() and not path.is_relative_to(script.folder):
            data[argument.name] = str(path)
    return data
