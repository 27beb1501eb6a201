"""The commented job file of a script, and the command with which the job runs it."""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.agent.cloud_parts import form_of
from spotctl.files.job.conversions import span_text
from spotctl.files.job.environment import file_in
from spotctl.files.job.forms import JOB_NAME
from spotctl.files.script.arguments import Argument
from spotctl.files.script.places import GIVEN, Head, SaveCall, ScriptPlace
from spotctl.files.script.reading import RESUMING, UNFINISHED, TrainingScript
from spotctl.files.script.source import nodes_of
from spotctl.home.cloud import cloud_of

LOCAL = "local"
_SHOWN_ARGUMENTS = 12
_LONGEST_DEFAULT = 40
_MARKET_SPAN = HOUR
"""Shorter runs are replayed faster on the local market, or they would end before the first
eviction."""
_FASTEST = 120
_GPU = re.compile(r"\.cuda\(|[\"']cuda|accelerator=[\"'](gpu|cuda|auto)|nvidia|\.to\(device\)")
_SMALL = {
    re.compile(
        r"(sav|ckpt|checkpoint|eval)\w*(every|interval|freq|steps)|(every|interval)\w*(sav|ckpt|checkpoint)"
    ): 10,
    re.compile(r"batch_?size$"): 8,
}
"""Arguments that a trial gives a smaller number, and the number."""
_PLAIN_LINE = re.compile(r"[\w~](?:(?!: | #).)*")
"""Lines that YAML reads as one text: without a mapping, a comment or a flow."""
_PLAIN_WORD = re.compile(r"[\w/.~][\w/.~:@+-]*")
"""A path that may stand between braces."""
_RANKS = re.compile(
    r"[\"'](LOCAL_RANK|RANK|WORLD_SIZE)[\"']|init_process_group\((?![^)]*(init_method|rank))"
    r"|\bimport deepspeed\b|\bimport torchtitan\b|\bfrom torchtitan"
)
"""Scripts that a launcher of ranks starts."""

_WRITES = re.compile(r"(^|_)(out|output|save|log|ckpt|checkpoint|results?|work|run|exp)s?(_|$|dir)")


@dataclass(frozen=True, slots=True)
class ScriptAnswers:
    """Answers of a person: where to run, how long it takes, and the bucket. `assumed` were not
    asked.
    """

    cloud: str = LOCAL
    span: int = MINUTE
    bucket: str = ""
    assumed: bool = True

    @property
    def speed(self) -> int:
        """Market time per real time on the local market."""
        return max(1, min(_FASTEST, _MARKET_SPAN // max(self.span, SECOND)))

    @property
    def is_local(self) -> bool:
        return self.cloud == LOCAL


def job_text(
    script: TrainingScript, answers: ScriptAnswers, *, is_trial: bool = False
) -> tuple[str, Sequence[str]]:
    """The text of the job file, and the arguments of its command that only a person can give; for a
    trial, the command saves early.
    """
    command, data, missing = command_of(script, "python", is_trial=is_trial)
    span = span_text(answers.span)
    assumed = []
    if answers.assumed:
        where = "the local market, replayed on this computer" if answers.is_local else answers.cloud
        assumed = [f"# Assumed: {where}; {span} of training if never evicted."]

    hours = f"hours: {span} # if never evicted"
    if answers.is_local:
        market = span_text(answers.span * answers.speed)
        hours = f"hours: {market} # market time if never evicted: {answers.speed} times {span}"

    read = f"which has read the script ({script.framework}) and not run it."
    lines = [
        f"# Written by spotctl init {script.path}, {read}",
        *assumed,
        "",
        f"name: {job_name(script)}",
        "kind: command",
        *_setup_and_run(script, _in_yaml(command, _PLAIN_LINE), answers),
        *_checkpoint(script, answers),
        *_outputs_and_data(script, command, data, answers),
        hours,
        "budget: 25 USD # hard limit",
        "# deadline: 10h # after the launch; or a time of day: 06:00",
        "",
        *_resources(script, answers),
    ]

    return "\n".join(lines) + "\n", missing


def command_of(
    script: TrainingScript, python: str, *, is_trial: bool = False
) -> tuple[str, Mapping[str, str], Sequence[str]]:
    """The command for a script as it is, the data of this computer that it names by default, and
    the arguments that only a person can give."""
    # A choice, a folder to write to, or a word that a person replaces stands for the value of an
    # argument without a default; a switch has none.
    required = dict[str, str]()
    for argument in script.arguments.values() if not script.typed else ():
        if argument.required:
            name = argument.name
            word = "outputs" if _WRITES.search(name.lower()) else name.upper()
            word = shlex.quote(str(argument.choices[0])) if argument.choices else word
            required[name] = "" if argument.is_switch else word

    # What is typed stays as it is, and nothing else is said of it.
    data = _data_of(script) if not script.typed else {}
    given = dict(required)
    given |= {name: f'"$DATA_{name.upper()}"' for name in data}
    resumes = script.resumes and not script.is_plain
    if resumes and not script.saved:
        given |= dict(_argument_places(script, script.saves, CHECKPOINTS))
    given |= _result_places(script) if not (script.is_plain or script.saved) else {}
    if is_trial and not script.typed:
        given |= _small_steps(script)
    words_typed = {word.partition("=")[0] for word in script.typed}
    typed = {
        each.name for each in script.arguments.values() if each.flag.rstrip("=") in words_typed
    }
    given = {name: value for name, value in given.items() if name not in typed}

    # Positionals keep their order.
    positional = [argument for argument in script.arguments.values() if argument.is_positional]
    options = [argument for argument in script.arguments.values() if not argument.is_positional]
    words, variables = [shlex.quote(word) for word in script.typed], list[str]()
    variables += [TRUSTING] if script.trusts else []
    for argument in (*positional, *options):
        if argument.name in given:
            place = variables if argument.is_variable else words
            place.append(argument.given(given[argument.name]))
    if resumes:
        for argument, resuming in _resumption(script, given | dict.fromkeys(typed, "")):
            (variables if argument.is_variable else words).append(resuming)

    text = " && ".join([_started(script, python, variables, words), *_copies(script)])
    missing = [given[name] for name in required if given.get(name) == name.upper()]

    return text, data, tuple(missing)


def _started(script: TrainingScript, python: str, variables: list[str], words: list[str]) -> str:
    """The command that starts a script with variables and words."""
    start = script.start
    if not start:
        # Only as a module, a part of a package can import the other parts.
        relative = any(each.level for each in nodes_of(ast.ImportFrom, script.source.tree))
        module = ".".join(script.path.with_suffix("").parts)
        target = f"-m {module}" if relative else shlex.quote(str(script.path))
        ranks = ""
        if _RANKS.search(script.source.text) and not script.is_alone:
            ranks = (
                "-m torch.distributed.run --standalone --nproc-per-node=$SPOTCTL_NPROC_PER_NODE "
            )
        start = f"{python} {ranks}{target}"

    text = " ".join(["env", *variables, start, *words] if variables else [start, *words])
    for named in re.findall(rf"{_NAMED}.*?\) && ", text):
        text = f"{named}{text.replace(named, '')}"
    return text


def _data_of(script: TrainingScript) -> dict[str, str]:
    """Data of this computer that arguments name by default, and that the job's folder does not
    contain.
    """
    data: dict[str, str] = {}
    saved = {save.place.name for save in (*script.saves, *script.final_saves, *script.loads)}
    for argument in script.arguments.values():
        default = argument.default
        is_path = isinstance(default, str) and re.search(r"[/\w]", default)
        if argument.name in saved or not is_path:
            continue
        path = (script.folder / Path(str(default)).expanduser()).resolve()
        if path.exists() and not path.is_relative_to(script.folder):
            data[argument.name] = str(path)
    return data


def job_name(script: TrainingScript) -> str:
    """A name from that of the script, or of its folder where the script's says nothing."""
    stem = script.path.stem
    words = f"{script.folder.name}-{stem}" if stem in ("train", "main", "run", "script") else stem
    name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:50].strip("-")
    try:
        return str(JOB_NAME.read(name))
    except ValueError:
        return "training"


def _in_yaml(text: str, plain: re.Pattern[str]) -> str:
    """A text as YAML reads it where only some texts can stand without quotes."""
    return text if plain.fullmatch(text) else "'" + text.replace("'", "''") + "'"


def _setup_and_run(script: TrainingScript, command: str, answers: ScriptAnswers) -> Iterator[str]:
    install, file = script.install, file_in(Path(script.path).resolve().parent)
    if file is not None:
        where = "where this Python lacks some of it" if answers.is_local else "for each machine"
        yield f"environment: {file} # built {where}"
    elif not answers.is_local:
        yield "environment: python # of its own, with pip and uv"
        if install:
            yield f"setup: pip install -q {install} # on each machine, before the command"
    elif install:
        here = "on a cloud; local machines use what is installed here"
        yield f"# setup: pip install {install} # {here}"

    if script.trusts:
        yield "# The script's checkpoints are more than weights, which PyTorch reads only if it may:"
    yield f"run: {command}"

    known = []
    for argument in script.arguments.values():
        is_option = not (argument.is_positional or argument.is_variable)
        if is_option and argument.default not in (None, "", False):
            words = " ".join(str(argument.default).split())
            text = "".join(filter(str.isprintable, words))
            cut = "..." if len(text) > _LONGEST_DEFAULT else ""
            known.append(f"{argument.flag} {text[:_LONGEST_DEFAULT]}{cut}")

    if known:
        more = ""
        if len(known) > _SHOWN_ARGUMENTS:
            more = f", and {len(known) - _SHOWN_ARGUMENTS} more"
        yield f"# defaults of its arguments: {', '.join(known[:_SHOWN_ARGUMENTS])}{more}"


def _checkpoint(script: TrainingScript, answers: ScriptAnswers) -> Iterator[str]:
    # What the job's folder has would go to each machine.
    folder = "stored-checkpoints" if "checkpoints/" in script.keep else "checkpoints"
    if not answers.is_local:
        folder = f"{_store(answers)}{job_name(script)}/checkpoints/"
    if script.resumes:
        # Globs are plain text within quotes only.
        places = ", ".join(_in_yaml(place, _PLAIN_WORD) for place in script.keep)
        keep = f", keep: [{places}]" if places else ""
        what = "copies of what the script saves, for the next machine"
        yield f"checkpoint: {{path: {_in_yaml(folder, _PLAIN_WORD)}{keep}}} # {what}"
    elif script.changes:
        yield "# No checkpoint: each eviction starts the script from scratch. Change the lines that a trial shows, try"
        yield f"# it again (spotctl init {script.path} --try --force), or uncomment this:"
        yield f"# checkpoint: {{path: {_in_yaml(folder, _PLAIN_WORD)}}}"
    else:
        yield "# No checkpoint: each eviction starts the script from scratch. Uncomment this if the script saves to"
        yield "# $SPOTCTL_CHECKPOINT_DIR, and loads from there when it starts:"
        yield f"# checkpoint: {{path: {_in_yaml(folder, _PLAIN_WORD)}}}"


def _outputs_and_data(
    script: TrainingScript, command: str, data: Mapping[str, str], answers: ScriptAnswers
) -> Iterator[str]:
    has_results = RESULTS in command
    if has_results:
        folder = "results" if answers.is_local else f"{_store(answers)}{job_name(script)}/results/"
        what = "the files that the command leaves in $OUTPUT_MODEL"
        yield f"outputs: {{model: {_in_yaml(folder, _PLAIN_WORD)}}} # {what}"

    if not data:
        return

    places, copied = data, ""
    if not answers.is_local and (script.resumes or has_results):
        copied = " # launch stores it in the bucket, and later only what has changed"
    elif not answers.is_local:
        places = {name: f"{_store(answers)}{name}/" for name in data}
        copied = f" # copies of {', '.join(data.values())}, made by you"

    yield f"data: {{{', '.join(f'{name}: {_in_yaml(path, _PLAIN_WORD)}' for name, path in places.items())}}}{copied}"


def _resources(script: TrainingScript, answers: ScriptAnswers) -> Iterator[str]:
    if answers.is_local:
        market = f"speed: {answers.speed}, start: 2026-01-24T01:10:00Z, warning: 5m"
        auto = "bids low, so that you see evictions; auto, the default, is for clouds"
        yield "resources:"
        yield "  clouds: [local] # or aws, gcp, azure: spotctl init asks for what they need"
        yield "  types: [c4.2xlarge]"
        yield 'env: {OMP_NUM_THREADS: 1} # local "machines" share your CPU'
        yield f"strategy: proteus # {auto}"
        yield f"local: {{{market}}} # replayed market"
        return

    words, text = cloud_of(answers.cloud).job, script.source.text
    if words is not None and words.identity:
        name = f"{{{answers.cloud}: NAME}}"
        yield f"# identity: {name} # the {words.identity} that may write to the bucket"
    yield "resources:"
    yield f"  clouds: [{answers.cloud}]"
    if region := first_region(answers.cloud):
        yield f"  regions: [{region}]"
    machines = "vcpus: 4..16, memory_gib: 8..64"
    if "torch" in text and _GPU.search(text):
        machines = 'accelerators: "T4:1"'
    yield f"  types: {{{machines}}}"
    yield "  reliable: {machines: 1} # the run lives there, so your computer may sleep"


def _store(answers: ScriptAnswers) -> str:
    if "://" in answers.bucket:
        return answers.bucket.rstrip("/") + "/"
    return f"{form_of(answers.cloud).partition('://')[0]}://{answers.bucket or bucket_example(answers.cloud)}/"


def bucket_example(cloud: str) -> str:
    """A name such as `my-bucket`, for a person to replace."""
    name = form_of(cloud).partition("://")[2].partition("/")[0]
    return re.sub(r"([A-Z]+)", r"my-\1", name).lower()


def first_region(cloud: str) -> str:
    """A large region of a cloud; empty if the cloud names none."""
    words = cloud_of(cloud).job
    return "" if words is None else words.region


CHECKPOINTS, RESULTS = '"$SPOTCTL_CHECKPOINT_DIR"', '"$OUTPUT_MODEL"'


def _small_steps(script: TrainingScript) -> dict[str, str]:
    """Arguments with which the script saves within seconds."""
    small = {}
    for argument in script.arguments.values():
        given = argument.default
        for words, most in _SMALL.items():
            if words.search(argument.name) and type(given) is int and given > most:
                small[argument.name] = str(most)
    return small


def _result_places(script: TrainingScript) -> dict[str, str]:
    """Arguments that say where only the result is saved."""
    used = {save.place.name for save in (*script.saves, *script.loads)}
    finals = [save for save in script.final_saves if save.place.name not in used]
    # The callback of spotctl keeps checkpoints, so the folder of a Trainer of Hugging Face is a
    # result.
    folder = {}
    if "output_dir" in script.arguments and script.uses_tools:
        folder["output_dir"] = RESULTS
    return folder | dict(_argument_places(script, finals, RESULTS))


def _argument_places(
    script: TrainingScript, saves: Sequence[SaveCall], folder: str
) -> Iterator[tuple[str, str]]:
    for place in (save.place for save in saves):
        argument = script.arguments.get(place.name) if place.head in GIVEN else None
        if argument is not None:
            file = Path(str(argument.default or ""))
            is_folder = place.tail or not file.suffix
            yield argument.name, folder if is_folder else f"{folder}/{file.name}"


_PLAIN = re.compile(r"([^\w./*-])")
"""Characters that a shell does not take as they are; asterisks are its own."""
_NEWEST, _ON = ("latest", "last", "auto", "resume"), ("1", "true", "True", "yes", "on")
"""Words by which a script is told to take its newest checkpoint, and the values of variables that
do."""


TRUSTING = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
"""Has PyTorch read whatever a script itself has saved."""

_NAMED = "newest="
"""The beginning of a command that names its newest checkpoint before the script starts."""


def _resumption(script: TrainingScript, given: Mapping[str, str]) -> Iterator[tuple[Argument, str]]:
    """The argument from which the script resumes, and the words that give it if there is a
    checkpoint.
    """
    saved = [save.place for save in script.saves if save.place.head is not Head.UNKNOWN]
    first = _path(script, saved[0]) if saved else f"{CHECKPOINTS}/*"
    first = _PLAIN.sub(r"\\\1", script.saved) or first
    is_given = set[bool]()
    # Other checkpoints are often those of another training, from which it begins.
    says = {
        each.name: "resum" in " ".join((each.name.lower(), *script.compared.get(each.name, ())))
        for each in script.arguments.values()
    }
    ranked = sorted(script.arguments.values(), key=lambda each: not says[each.name])
    for argument in ranked:
        is_asked_for = RESUMING.search(argument.name.lower()) and argument.default is not True
        if argument.name in given or not is_asked_for:
            continue

        compared = script.compared.get(argument.name, ())
        word = next((word for word in _NEWEST if word in compared), "")
        loads = [load.place for load in script.loads if load.place.name == argument.name]
        if argument.is_variable and not (loads or word):
            word = next((word for word in _ON if word in compared), _ON[0])

        is_flag = argument.is_switch or isinstance(argument.default, bool)
        is_switch = bool(is_flag or word)
        # What is loaded in another module was not read.
        is_path = loads or (script.saved and argument.default in (None, "", False))
        if is_switch in is_given or not (is_switch or is_path):
            continue
        # Some have a switch, and another argument for the path.
        if is_switch and is_given and "resume" not in argument.name.lower():
            continue

        is_given.add(is_switch)
        if is_switch:
            # Some scripts fail if there is nothing to resume from.
            said = argument.given(word or "True")
            yield argument, f"$(ls -d {first} >/dev/null 2>&1 && echo {said})"
        else:
            yield argument, _newest(script, argument, loads, saved)
        if not script.saved:
            return


def _newest(
    script: TrainingScript,
    argument: Argument,
    loads: Sequence[ScriptPlace],
    saved: Sequence[ScriptPlace],
) -> str:
    """The words that give an argument the newest checkpoint, if there is one."""
    for load, place in product(loads, saved):
        # A load that goes as deep as a save, through a folder of each save: the script finds the
        # newest below its folder.
        steps, kept = load.tail.split("/"), place.tail.split("/")
        if len(steps) == len(kept) > 2 and steps[-1] == kept[-1] and "*" in steps[-2]:
            folder = CHECKPOINTS
            if script.saved:
                folder = _PLAIN.sub(r"\\\1", script.saved.partition("/")[0])
            said = argument.given(folder)
            return f"$(ls -d {folder}/* >/dev/null 2>&1 && echo {said})"

    # A file whose name is known tells which folders are checkpoints.
    named = [place for place in loads if "*" not in place.tail] or loads
    inner = next((place.tail for place in named if place.tail), "")
    wholes = [place for place in saved if inner and place.tail.endswith(inner)] or saved[:1]
    paths = [_path(script, place) for place in wholes]
    path = " ".join(paths) or f"{CHECKPOINTS}/*"

    strip = f"s|{inner}$||; " if inner else ""
    if script.saved:
        path = _PLAIN.sub(r"\\\1", script.saved)
        strip = strip if script.saved.endswith(inner) else ""
    # In the order of their numbers: a copy of a checkpoint has new times on some stores.
    if "\\ " in path:
        # A shell splits what it reads at spaces, unless it is a variable in quotes.
        looks = f"{_NAMED}$(ls -d {path} 2>/dev/null | sort -V | sed -n '$ {{{strip}p}}') && "
        quoted = argument.given('"$newest"')
        return f"{looks}${{newest:+{quoted}}}"
    newest = f"sort -V | sed -n '$ {{{strip}s|^|{argument.given('')}|; p}}'"
    return f"$(ls -d {path} 2>/dev/null | {newest})"


def _path(script: TrainingScript, place: ScriptPlace) -> str:
    """The path of a save, in the folder of checkpoints or where the script has it."""
    # What is written under another name at first has this one in the end.
    if place.head is Head.LITERAL:
        return UNFINISHED.sub("", f"{place.name}{place.tail}")
    argument = script.arguments.get(place.name) if place.head in GIVEN else None
    name = Path(str(argument.default)).name if argument and argument.default else ""
    below = place.tail.strip("/") or name or "*"
    return f"{CHECKPOINTS}/{UNFINISHED.sub('', below)}"


def _copies(script: TrainingScript) -> Iterator[str]:
    """Commands that keep what is saved under fixed names of the machine's folder."""
    finals = {
        save.place.own_path: save for save in script.final_saves if "*" not in save.place.tail
    }
    finals.pop("", None)
    if finals:
        copy = f"cp -r {' '.join(map(shlex.quote, sorted(finals)))} {RESULTS}"
        above = [outer for save in finals.values() for outer in script.source.above(save.call)]
        conditions = [outer.test for outer in above if isinstance(outer, ast.If)]
        is_certain = all("__name__" in ast.unparse(test) for test in conditions)
        yield copy if is_certain else f"{{ {copy} || true; }}"
    elif script.resumes and (script.is_plain or script.saved or not _result_places(script)):
        names = {save.place.own_path for save in script.saves} - {""}
        if script.uses_tools and names:
            # spotctl keeps the state of the loop, and not what the script itself saves in it. The
            # last machine may have had no reason to save.
            yield f"{{ cp -r {' '.join(map(shlex.quote, sorted(names)))} {RESULTS} || true; }}"
        if script.keep:
            places = (_PLAIN.sub(r"\\\1", place) for place in script.keep)
            copy = f"cp -r {' '.join(places)} {RESULTS}"
            yield copy if len(script.keep) == 1 else f"{{ {copy} || true; }}"
        elif not script.is_plain or not script.typed:
            yield f"cp -r {CHECKPOINTS}/. {RESULTS}"
