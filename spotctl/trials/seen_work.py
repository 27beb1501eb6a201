"""Whether a program that was killed and started again repeats work, judged by what was seen of it.

What was seen is a list of marks: steps of the optimizer and saves, each with the numbers of the
loops around it. Work is repeated if the first mark after the start has numbers that the program had
passed before the save that it got back. Weights count as well: a program that goes on to count, but
with weights that it has not saved, has lost its work. They are those of the save if

    |start - expected|  <=  0.3 |expected - first| + one step,

where `first` are the weights of the very first mark, and `expected` those that follow the save. A
program that repeats work must never be seen to resume. Where marks leave it open, nothing was seen.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from math import dist, inf
from operator import attrgetter
from pathlib import Path

from spotctl.trials.script_watch import AWAITED, END, REST_SECONDS

_SAME_WEIGHTS = 0.3
"""Weights are those of a save if they are so much nearer to it than the first weights of the
training are."""

_STEPS, _SAVES = 2.0, 1.25
"""How much longer than the last the step after a save may be, and the way to the next save."""

_SHOWN_NUMBERS = 2
_INSTANT, _MEASURABLE = 1e-6, 0.1
"""In seconds; what takes less than the second is lost in what a computer does besides."""


class Verdict(StrEnum):
    """The end of a trial of a program that was killed."""

    RESUMED = "resumed"
    RESTARTED = "restarted"
    FAILED = "failed"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class WorkMark:
    """A line of `script_watch`: `step`, `save`, `done`, `cut` or `load`, when, and where the loops
    stood.

    `position` maps each number of a loop to its kind and value: `for`, `bound` (ends the loop),
    `count`, `trainer` (steps of a library), `end` (where a range ends), or `open` for a loop without
    a number. The weights of a
    save are some of the numbers that it writes, where they are seen.
    """

    kind: str
    at: float
    path: str = ""
    position: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    weights: Sequence[float] = ()
    spent: float = 0.0
    """The processor time of its process, in seconds."""
    aside: bool = False
    """Whether another thread or process saves than the one that trains."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and in words what was seen.

    The next start needs the places of the job's folder in `keep`, and not the `left` files. `saved`
    are globs of the files there that it may resume from.
    """

    verdict: Verdict
    saw: str
    keep: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()


class SeenMarks:
    """The marks that the processes of one start have written so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._by_process: dict[str, list[WorkMark]] = {}

    def all(self) -> list[WorkMark]:
        """All marks in the order of their times; steps only of the process with the most.

        Ranks of a training step alike.
        """
        for path in sorted(self._folder.glob("[0-9]*")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)

            marks = self._by_process.setdefault(path.name, [])
            for written in map(json.loads, whole.splitlines()):
                position = {key: (kind, no) for key, kind, no in written.get("position", ())}
                place, weights = written.get("path", ""), written.get("weights", ())
                if written["kind"] != "state":
                    spent, aside = written.get("spent", 0.0), written.get("aside", False)
                    mark = WorkMark(
                        written["kind"], written["at"], place, position, weights, spent, aside
                    )
                    marks.append(mark)
                    continue

                # The last save to a path gets the weights written into it.
                saves = [number for number, mark in enumerate(marks) if mark.kind == "save"]
                same = [number for number in saves if marks[number].path == place]
                if same and not marks[same[-1]].weights:
                    marks[same[-1]] = replace(marks[same[-1]], weights=weights)

        steps = {
            name: sum(mark.kind == "step" for mark in marks)
            for name, marks in self._by_process.items()
        }
        first = max(steps, key=steps.__getitem__, default="")
        chosen: list[WorkMark] = []
        for name, marks in self._by_process.items():
            chosen += [mark for mark in marks if name == first or mark.kind != "step"]

        return sorted(chosen, key=attrgetter("at"))


def is_progress(mark: WorkMark) -> bool:
    """Whether a mark is a save within a loop, and not of a vocabulary or a configuration before
    it."""
    return mark.kind == "save" and bool(mark.position)


def marks_of_work(*lives: Sequence[WorkMark]) -> list[list[WorkMark]]:
    """The marks by which starts can be compared: steps if the first has any, otherwise saves."""
    kind = "step" if any(mark.kind == "step" for mark in lives[0]) else "save"
    return [[mark for mark in life if mark.kind == kind and mark.position] for life in lives]


def judged(
    first: Sequence[WorkMark], kept: Sequence[WorkMark], kept_at: float, after: Sequence[WorkMark]
) -> Judgement:
    """The verdict on a start that got back what the program had saved until `kept_at`.

    `first` are the marks of the very first start, `kept` those of the start that saved, and `after`
    of the start that got the save.
    """
    begun, earlier, later = marks_of_work(first, kept, after)
    kept_at = _taken_at(earlier, kept, kept_at, after, later)
    done = [mark for mark in earlier if mark.at <= kept_at]
    if not done or not later:
        verdict = Verdict.NOT_SEEN
        saw = "no optimizer step, and no save inside a loop, was seen on both sides of the kill"
        numbers = _growing(begun) if kept_at == -inf and later else ()
        places = [_place(each[0], numbers) for each in (begun, earlier, later) if numbers]
        # It began with a save, too, and was killed before there was another.
        if numbers and places[0] < places[1] <= places[2]:
            verdict, saw = Verdict.RESUMED, f"continued at {_words(later[0], numbers)}"
        return Judgement(verdict, saw)

    numbers, start = _growing(begun), later[0]
    has_weights = _has_kept_weights(begun, earlier, kept_at, start)
    here = _words(start, numbers or _counts(begun))
    if numbers:
        answer = _by_numbers(begun, done, start, numbers, has_weights)
    else:
        answer = _by_counts(begun, done, start, has_weights)

    if answer.verdict is not Verdict.RESUMED:
        return answer

    if has_weights is False and start.kind == "save":
        # What lies between two saves may be a long way, of which numbers in other places are
        # noise: only weights that are much nearer to the first are surely those of a beginning.
        expected, _ = _expected_weights(earlier, kept_at)
        from_first, from_save = (dist(start.weights, each) for each in (begun[0].weights, expected))
        is_unclear = 2 * from_first > from_save
    else:
        had_weights = any(mark.weights for mark in done)
        is_unclear = start.kind == "save" and not start.weights and had_weights

    if is_unclear:
        saw = f"continued at {here}, but whether with what it had saved was not seen"
        return Judgement(Verdict.NOT_SEEN, saw)
    if has_weights is False:
        saw = f"continued at {here}, but with weights that it had not saved"
        return Judgement(Verdict.RESTARTED, saw)

    again = _computed_again(first, earlier, kept_at, after, start) if start.kind == "save" else ()
    if any(again):
        # On a busy computer, the clock and the processor time may say different things.
        verdict = Verdict.RESTARTED if all(again) else Verdict.NOT_SEEN
        took = "took" if all(again) else "may have taken"
        saw = f"went on to save at {here}, but {took} as long as for all the work before"
        return Judgement(verdict, saw)

    return (
        _by_reading(kept, kept_at, after, start, here) if has_weights is None else None
    ) or answer


def _taken_at(
    earlier: Sequence[WorkMark],
    kept: Sequence[WorkMark],
    kept_at: float,
    after: Sequence[WorkMark],
    later: Sequence[WorkMark],
) -> float:
    """The time of the state in a save. Another thread or process saves what the training was a few
    steps before, but after the save before that: there, where the next start begins.

    A save of several files that lacks those that the next start reads is none: it has the state of
    the save before."""
    saves = [mark for mark in kept if is_progress(mark) and mark.at <= kept_at]
    if not saves or not later:
        return kept_at
    loads = [mark for mark in after if mark.kind == "load" and mark.at <= later[0].at]
    if _lacks_what_is_read(kept, kept_at, loads):
        whole = (mark.at for mark in saves if mark.position != saves[-1].position)
        return max(whole, default=-inf)
    if not saves[-1].aside:
        return kept_at
    last = saves[-1]
    # A process of its own stands at no number of the training.
    earlier_saves = [
        mark.at for mark in saves[:-1] if mark.position != last.position or mark.path == last.path
    ]
    for mark in reversed(earlier):
        if (
            max(earlier_saves, default=0.0) < mark.at <= kept_at
            and mark.position == later[0].position
        ):
            return mark.at - _INSTANT
    return kept_at


def _lacks_what_is_read(
    kept: Sequence[WorkMark], kept_at: float, loads: Sequence[WorkMark]
) -> bool:
    """Whether the save that was kept has none of the files that were loaded, and the one before all
    of them, or one of them was written only after what was kept."""
    # What is written under another name at first has its own in the end.
    names, later = list[set[str]](), set[str]()
    before: WorkMark | None = None
    is_late = False
    for mark in kept:
        if is_progress(mark):
            is_next = before is None or mark.position != before.position
            is_late = mark.at > kept_at
            if is_late and is_next:
                break
            if is_next:
                names.append(set())
            before = mark
        if names and mark.kind in ("save", "done"):
            (later if is_late else names[-1]).add(_series(mark.path))

    loaded = {_series(mark.path) for mark in loads}
    if len(names) > 1:
        whole, part = names[-2:]
        read = loaded & (whole | part)
        return bool(read) and (read <= whole - part or bool(loaded & later & whole - part))
    return bool(names) and bool(loaded & later - names[0])


def _computed_again(
    first: Sequence[WorkMark],
    earlier: Sequence[WorkMark],
    kept_at: float,
    after: Sequence[WorkMark],
    start: WorkMark,
) -> tuple[bool, ...]:
    """Whether a start without steps spent, up to its first save, the time of all saves before: by
    its wall time, and by its processor time unless its loop sleeps or uses a GPU.

    A script that counts on may have computed everything again without a word.
    """
    saves: dict[str, WorkMark] = {}
    for mark in earlier:
        if mark.at <= kept_at:
            saves.setdefault(str(mark.position), mark)
    ways = [*saves.values()]
    loads = [mark for mark in after if mark.kind == "load" and mark.at <= start.at]
    if len(ways) < 2 or not loads:
        return ()

    rests = [max(end.at - begin.at - REST_SECONDS, 0.0) for begin, end in pairwise(ways)]
    spent = ways[-1].spent - ways[0].spent
    begins = [min(mark.at for mark in life) for life in (first, after)]
    compared = [
        (start.at - loads[-1].at, start.at - begins[1] - ways[0].at + begins[0], sum(rests)),
        (start.spent - loads[-1].spent, start.spent - ways[0].spent, spent),
    ]
    if spent < _MEASURABLE:
        compared = compared[:1]
    if sum(rests) <= _MEASURABLE:
        return ()
    between = len(ways) - 1
    return tuple(
        since > work / between + work / 2 and more > work / 2 for since, more, work in compared
    )


def _by_reading(
    kept: Sequence[WorkMark],
    kept_at: float,
    after: Sequence[WorkMark],
    start: WorkMark,
    here: str,
) -> Judgement | None:
    """The verdict on a start that read the wrong files or none, where weights were not seen.

    None if it read the newest file of each series of saves that it read any of.
    """
    saves = [mark for mark in kept if is_progress(mark) and mark.at <= kept_at]
    newest = {_series(mark.path): Path(mark.path).name for mark in saves}
    loads = [mark for mark in after if mark.kind == "load" and mark.at <= start.at]
    read: dict[str, list[str]] = {}
    for mark in loads:
        read.setdefault(_series(mark.path), []).append(Path(mark.path).name)

    for series, names in read.items():
        if series in newest and newest[series] not in names:
            older = f"it read {names[-1]}, although {newest[series]} is newer"
            return Judgement(Verdict.RESTARTED, f"continued at {here}, but {older}")

    if start.kind == "save" and not loads:
        saw = f"went on to save at {here}, but was not seen to read what it had saved"
        return Judgement(Verdict.NOT_SEEN, saw)

    return None


def _series(path: str) -> str:
    """The name of a file without its numbers: files of successive saves have the same."""
    return re.sub(r"\d+", "#", Path(path).name)


_Number = tuple[str, int]
"""A key of positions, and 1 if its number grows or -1 if it falls."""


def _by_numbers(
    begun: Sequence[WorkMark],
    done: Sequence[WorkMark],
    start: WorkMark,
    numbers: Sequence[_Number],
    has_weights: bool | None,
) -> Judgement:
    here, last = _words(start, numbers), _words(done[-1], numbers)
    at = _place(start, numbers)
    repeated = sum(_place(mark, numbers) >= at for mark in done)
    if not repeated:
        # A range may begin with what was loaded, and be as long as before.
        key = next(iter(start.position))
        before, now = (mark.position.get(key + END, ("end", 0))[1] for mark in (done[-1], start))
        went_on = abs(at[0] - _place(begun[0], numbers)[0])
        but = _missed(key, done[-1], start)
        if key == numbers[0][0] and 0 < went_on <= now - before:
            but = f", but goes on to {now}, before to {before}"
        verdict = Verdict.RESTARTED if but else Verdict.RESUMED
        return Judgement(verdict, f"continued at {here}{but}")

    outermost = numbers[:1]
    within = len(numbers) > 1 or any(kind == "open" for kind, _ in start.position.values())
    is_same_epoch = within and _place(start, outermost) == _place(done[-1], outermost)
    if is_same_epoch and has_weights is not False:
        # Its batches may have been skipped by the loader, which has no number.
        going_on = _going_on(done, start)
        counted, kinds = _words(start, going_on), {start.position[key][0] for key, _ in going_on}
        if "bound" in kinds:
            return Judgement(Verdict.RESUMED, f"continued at {counted}")
        if "count" in kinds:
            skips = f"whether it skips the batches of {here} that it had done"
            return Judgement(Verdict.NOT_SEEN, f"counts on at {counted}, but {skips} was not seen")

    if at <= _place(begun[0], numbers):
        loaded = ", with the weights that it had saved" if has_weights else ""
        return Judgement(
            Verdict.RESTARTED, f"began again at {here}{loaded}; it had saved at {last}"
        )
    if here == last:
        cure = "; save the number of the next one" if has_weights else ""
        return Judgement(Verdict.RESTARTED, f"repeated {here}, which it had saved{cure}")

    return Judgement(Verdict.RESTARTED, f"went back to {here}, although it had saved at {last}")


def _missed(key: str, before: WorkMark, start: WorkMark) -> str:
    """Says which number of a loop over a range is no longer waited for, since what is waited for
    moves with the start, beyond the end of the range; empty if there is none."""
    ends = [mark.position.get(key + END, ("end", 0))[1] for mark in (before, start)]
    for awaited, (_, number) in start.position.items():
        name, _, line = awaited.partition(AWAITED)
        known = before.position.get(awaited, ("end", ends[0]))[1]
        if line and name == key and known < ends[0] and number >= ends[1]:
            what = key.rpartition(":")[2]
            waits = f"waits for {what} {number}, which does not come"
            return f", but line {line} {waits}, before for {known}"
    return ""


def _by_counts(
    begun: Sequence[WorkMark],
    done: Sequence[WorkMark],
    start: WorkMark,
    has_weights: bool | None,
) -> Judgement:
    """The verdict on loops that have no number, such as over the batches of a loader."""
    counts = _counts(begun)
    if counts and not _going_on(done, start):
        return Judgement(Verdict.RESTARTED, f"began again at {_words(start, counts)}")
    if has_weights is False:
        return Judgement(Verdict.RESTARTED, "began again, with weights that it had not saved")
    return Judgement(
        Verdict.NOT_SEEN, "its loop has no number by which repeated work could be seen"
    )


def _growing(marks: Sequence[WorkMark]) -> list[_Number]:
    """The numbers that say together where a training stands, from the outermost; none if none of
    them changes.
    """
    known = max((mark.position for mark in marks), key=len, default={})
    trainers = [key for key, (kind, _) in known.items() if kind == "trainer"]
    keys = trainers or [key for key, (kind, _) in known.items() if kind in ("for", "bound")]
    chosen: list[_Number] = []

    for key in keys:
        for sign in (1, -1):
            tried = [*chosen, (key, sign)]
            places = [_place(mark, tried) for mark in marks]
            if places == sorted(places):
                chosen = tried
                break

    if not marks or _place(marks[0], chosen) == _place(marks[-1], chosen):
        return []
    # A bound that stays, such as the number of all steps, says nothing.
    return [
        (key, sign)
        for key, sign in chosen
        if known[key][0] != "bound" or len({_place(mark, [(key, 1)]) for mark in marks}) > 1
    ]


def _counts(marks: Sequence[WorkMark]) -> list[_Number]:
    """The numbers that loops count up."""
    known = max((mark.position for mark in marks), key=len, default={})
    lines = {}
    for key, (kind, _) in known.items():
        if kind in ("count", "bound"):
            lines[key] = [_place(mark, [(key, 1)])[0] for mark in marks]
    growing = {key: line for key, line in lines.items() if line == sorted(line)}
    return [(key, 1) for key, line in growing.items() if line[0] < line[-1]]


def _going_on(done: Sequence[WorkMark], start: WorkMark) -> list[_Number]:
    """The numbers that a loop had counted up before, and goes on to count."""
    counts, last = _counts(done), done[-1].position
    known = [(key, sign) for key, sign in counts if key in start.position]
    return [
        (key, sign) for key, sign in known if start.position[key][1] >= last.get(key, ("", 0))[1]
    ]


def _place(mark: WorkMark, numbers: Sequence[_Number]) -> tuple[int, ...]:
    return tuple(
        sign * mark.position[key][1] if key in mark.position else -1 for key, sign in numbers
    )


def _has_kept_weights(
    begun: Sequence[WorkMark], earlier: Sequence[WorkMark], kept_at: float, start: WorkMark
) -> bool | None:
    """Whether a start has the weights of the save; None if the weights had not changed, or were not
    seen.
    """
    expected, step = _expected_weights(earlier, kept_at)
    first = begun[0].weights
    if not len(expected) == len(first) == len(start.weights) or not expected:
        return None

    way = dist(first, expected)
    if way <= 1e-9 * max(map(abs, expected)):
        return None

    # Two saves may be half of the way apart, and a step is not.
    is_near = start.kind == "step" or dist(start.weights, expected) < dist(start.weights, first)
    return is_near and dist(start.weights, expected) <= _SAME_WEIGHTS * way + step


def _expected_weights(earlier: Sequence[WorkMark], kept_at: float) -> tuple[Sequence[float], float]:
    """The weights that follow a save, and how far from these a start with the save may be."""
    after = next((mark.weights for mark in earlier if mark.at > kept_at), None)
    *_, before, last = (), (), *(mark.weights for mark in earlier if mark.at <= kept_at)
    if after is not None:
        # Other random numbers lead as far, in another direction.
        is_one_save_on = earlier[-1].kind == "save" and len(after) == len(last)
        return after, dist(last, after) if is_one_save_on else 0.0

    # Without a step after the save, its weights are one step from the last that were seen.
    steps = _STEPS if earlier[-1].kind == "step" else _SAVES
    return last, steps * dist(before, last) if len(before) == len(last) else 0.0


def _words(mark: WorkMark, numbers: Sequence[_Number]) -> str:
    """Where a training stands, in the script's own words: `epoch 2, step 30`."""
    shown: dict[str, int] = {}
    for key, _ in numbers:
        name = key.rpartition(":")[2].replace("[", ".").rpartition(".")[2]
        if key in mark.position and name not in shown and name.strip("_"):
            shown[name] = mark.position[key][1]

    return (
        ", ".join(f"{name} {number}" for name, number in list(shown.items())[:_SHOWN_NUMBERS])
        or "the beginning"
    )
