"""The commented job file of a script."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.agent.cloud_parts import form_of
from spotctl.files.job.conversions import span_text
from spotctl.files.job.forms import JOB_NAME
from spotctl.files.script.command_line import ScriptCommand, command_of
from spotctl.files.script.reading import TrainingScript
from spotctl.home.cloud import cloud_of

LOCAL = "local"
_ENVIRONMENT = "~/env/bin/python"
_SHOWN_ARGUMENTS = 12
_LONGEST_DEFAULT = 40
_MARKET_SPAN = HOUR
"""Shorter runs are replayed faster on the local market, or they would end before the first eviction."""
_FASTEST = 120


@dataclass(frozen=True, slots=True)
class ScriptAnswers:
    """Answers of a person: where to run, how long it takes, and the bucket. `assumed` were not asked."""

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


def job_text(script: TrainingScript, answers: ScriptAnswers) -> tuple[str, ScriptCommand]:
    """The text of the job file, and its command."""
    command = command_of(script, "python" if answers.is_local else _ENVIRONMENT)
    lines = [
        *_heading(script, answers),
        "",
        f"name: {job_name(script)}",
        "kind: command",
        *_setup(script, answers),
        f"run: {_quoted(command.text)}",
        *_arguments(script),
        *_checkpoint(script, answers),
        *_outputs(script, command, answers),
        *_data(script, command, answers),
        *_length(answers),
        "",
        *_resources(script, answers),
    ]
    return "\n".join(lines) + "\n", command


def job_name(script: TrainingScript) -> str:
    """A name from that of the script, or of its folder where the script's says nothing."""
    stem = script.path.stem
    words = f"{script.folder.name}-{stem}" if stem in ("train", "main", "run", "script") else stem
    name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:50].strip("-")
    try:
        return str(JOB_NAME.read(name))
    except ValueError:
        return "training"


def _heading(script: TrainingScript, answers: ScriptAnswers) -> Iterator[str]:
    framework = script.libraries.framework
    yield f"# Written by spotctl init {script.path}, which has read the script ({framework}) and not run it."
    if answers.assumed:
        where = "the local market, replayed on this computer" if answers.is_local else answers.cloud
        yield f"# Assumed: {where}; {span_text(answers.span)} of training if never evicted."


def _quoted(text: str) -> str:
    """A plain scalar of YAML, or a quoted one where YAML would read the text in another way."""
    return _single_quoted(text) if re.search(r": | #|^[^\w~]", text) else text


def _in_flow(text: str) -> str:
    """A path as it stands between braces."""
    return text if re.fullmatch(r"[\w/.~][\w/.~:@+-]*", text) else _single_quoted(text)


def _single_quoted(text: str) -> str:
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


def _setup(script: TrainingScript, answers: ScriptAnswers) -> Iterator[str]:
    install = script.libraries.install
    if answers.is_local:
        if install:
            yield f"# setup: pip install {install} # on a cloud; local machines use what is installed here"
        return
    yield "setup: | # on each machine, before the command"
    yield "  sudo apt-get -qq update && sudo apt-get -qq install -y python3-venv"
    yield "  python3 -m venv ~/env"
    if install:
        yield f"  ~/env/bin/pip install -q {install}"


def _arguments(script: TrainingScript) -> Iterator[str]:
    known = [
        f"{argument.flag} {_in_comment(argument.default)}"
        for argument in script.arguments
        if not argument.is_positional and argument.default not in (None, "", False)
    ]
    if known:
        more = f", and {len(known) - _SHOWN_ARGUMENTS} more" if len(known) > _SHOWN_ARGUMENTS else ""
        yield f"# defaults of its arguments: {', '.join(known[:_SHOWN_ARGUMENTS])}{more}"


def _in_comment(default: object) -> str:
    text = "".join(letter for letter in " ".join(str(default).split()) if letter.isprintable())
    return text if len(text) <= _LONGEST_DEFAULT else f"{text[:_LONGEST_DEFAULT]}..."


def _checkpoint(script: TrainingScript, answers: ScriptAnswers) -> Iterator[str]:
    folder = "checkpoints" if answers.is_local else f"{_store(answers)}{job_name(script)}/checkpoints/"
    if script.resumes:
        yield f"checkpoint: {{path: {_in_flow(folder)}}} # copies of what the script saves, for the next machine"
    elif script.changes:
        yield "# No checkpoint: each eviction starts the script from scratch. After the changes that spotctl init has"
        yield f"# shown, run spotctl init {script.path} --force, or uncomment this:"
        yield f"# checkpoint: {{path: {_in_flow(folder)}}}"
    else:
        yield "# No checkpoint: each eviction starts the script from scratch. Uncomment this if the script saves to"
        yield "# $SPOTCTL_CHECKPOINT_DIR, and loads from there when it starts:"
        yield f"# checkpoint: {{path: {_in_flow(folder)}}}"


def _outputs(script: TrainingScript, command: ScriptCommand, answers: ScriptAnswers) -> Iterator[str]:
    if command.has_results:
        folder = "results" if answers.is_local else f"{_store(answers)}{job_name(script)}/results/"
        yield f"outputs: {{model: {_in_flow(folder)}}} # the files that the command leaves in $OUTPUT_MODEL"


def _data(script: TrainingScript, command: ScriptCommand, answers: ScriptAnswers) -> Iterator[str]:
    if not command.data:
        return
    places, copied = command.data, ""
    if not answers.is_local and (script.resumes or command.has_results):
        copied = " # launch stores it in the bucket, and later only what has changed"
    elif not answers.is_local:
        places = {name: f"{_store(answers)}{name}/" for name in command.data}
        copied = f" # copies of {', '.join(command.data.values())}, made by you"
    yield f"data: {{{', '.join(f'{name}: {_in_flow(path)}' for name, path in places.items())}}}{copied}"


def _length(answers: ScriptAnswers) -> Iterator[str]:
    if answers.is_local:
        market, real = span_text(answers.span * answers.speed), span_text(answers.span)
        yield f"hours: {market} # market time if never evicted: {answers.speed} times {real}"
    else:
        yield f"hours: {span_text(answers.span)} # if never evicted"
    yield "budget: 25 USD # hard limit"
    yield "# deadline: 10h # after the launch; or a time of day: 06:00"


def _resources(script: TrainingScript, answers: ScriptAnswers) -> Sequence[str]:
    if answers.is_local:
        return (
            "resources:",
            "  clouds: [local] # or aws, gcp, azure: spotctl init asks for what they need",
            "  types: [c4.2xlarge]",
            "strategy: proteus # bids low, so that you see evictions; auto, the default, is for clouds",
            f"local: {{speed: {answers.speed}, start: 2026-01-25T10:40:00Z, warning: 5m}} # replayed market",
        )
    machines = 'accelerators: "T4:1"' if script.wants_gpu else "vcpus: 4..16, memory_gib: 8..64"
    words = cloud_of(answers.cloud).job
    identity = words.identity if words is not None else ""
    return (
        *([f"# identity: {{{answers.cloud}: NAME}} # the {identity} that may write to the bucket"] if identity else ()),
        "resources:",
        f"  clouds: [{answers.cloud}]",
        *([f"  regions: [{region}]"] if (region := first_region(answers.cloud)) else ()),
        f"  types: {{{machines}}}",
        "  reliable: {machines: 1} # the run lives there, so your computer may sleep",
    )


def _store(answers: ScriptAnswers) -> str:
    if "://" in answers.bucket:
        return answers.bucket.rstrip("/") + "/"
    return f"{form_of(answers.cloud).partition('://')[0]}://{answers.bucket or bucket_example(answers.cloud)}/"


def bucket_example(cloud: str) -> str:
    """A name such as `my-bucket`, for a person to replace."""
    name = form_of(cloud).partition("://")[2].partition("/")[0]
    return re.sub(r"[A-Z]+", lambda word: f"my-{word[0].lower()}", name)


def first_region(cloud: str) -> str:
    """A large region of a cloud; empty if the cloud names none."""
    words = cloud_of(cloud).job
    return "" if words is None else words.region
