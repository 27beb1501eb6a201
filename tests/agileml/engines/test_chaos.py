"""Chaos: its grammar, and the faults that its schedule returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, strategies as st

from agileml.engines.chaos import (
    EXAMPLE,
    WARNING_SECONDS,
    Act,
    Chaos,
    Evict,
    FaultSchedule,
    Join,
    KillController,
    RemoveNodes,
    Rule,
    RunningMachine,
)
from agileml.errors import BadArgument

MACHINES = [
    *(RunningMachine(f"r{number}", reliable=True, warned=False) for number in range(2)),
    *(RunningMachine(f"t{number}", reliable=False, warned=False) for number in range(5)),
]


def test_the_example_of_the_spec() -> None:
    assert Chaos.parse(EXAMPLE, 3) == Chaos(
        (
            Rule(
                20,
                in_clocks=True,
                repeats=False,
                fault=RemoveNodes("half", reliable=False, warning=5),
            ),
            Rule(
                30,
                in_clocks=False,
                repeats=False,
                fault=RemoveNodes(1, reliable=False, warning=None),
            ),
            Rule(50, in_clocks=True, repeats=False, fault=Join(2, reliable=False)),
            Rule(
                20,
                in_clocks=False,
                repeats=True,
                fault=RemoveNodes(1, reliable=False, warning=None),
                probability=0.3,
            ),
        ),
        3,
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "AT CLOCK 1 DO KILL ALL",
            Rule(1, in_clocks=True, repeats=False, fault=RemoveNodes("all", False, None)),
        ),
        (
            "at 250ms evict 2 reliable",
            Rule(0.25, in_clocks=False, repeats=False, fault=RemoveNodes(2, True, WARNING_SECONDS)),
        ),
        (
            "at 1.5min evict 2 warn 0s reliable",
            Rule(90, in_clocks=False, repeats=False, fault=RemoveNodes(2, True, 0)),
        ),
        (
            "every 5 clocks join 1 reliable",
            Rule(5, in_clocks=True, repeats=True, fault=Join(1, True)),
        ),
        (
            "every 2h kill controller prob 1",
            Rule(7200, in_clocks=False, repeats=True, fault=KillController()),
        ),
        (
            ";; at 2m kill half;",
            Rule(120, in_clocks=False, repeats=False, fault=RemoveNodes("half", False, None)),
        ),
    ],
)
def test_variants_of_the_grammar(text: str, rule: Rule) -> None:
    assert Chaos.parse(text).rules == (rule,)


def test_no_text_is_no_chaos() -> None:
    assert Chaos.parse(" ") == Chaos()
    assert not FaultSchedule(Chaos()).is_due(10**6, 1e9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "at clock 20 evcit half",
            "character 13: found 'evcit', expected evict, kill or join; for example: at clock",
        ),
        (
            "kill 1",
            "character 1: found 'kill', expected at, every, slow, disrupt, power, uneven or replay",
        ),
        ("at 30 kill 1", "character 4: found '30', expected clock N, or a time such as 30s"),
        ("at clock x kill 1", "character 10: found 'x', expected the number of a clock"),
        ("at clock 1.5 kill 1", "character 10: found '1.5'"),
        (
            "at 3s kill 0",
            "character 12: found '0', expected a number of nodes, half or all, or controller",
        ),
        (
            "at 3s evict controller",
            "character 13: found 'controller', expected a number of nodes, half or all;",
        ),
        ("at 3s kill -1", "character 12: found '-1'"),
        ("at 3s kill ٣", "character 12: found '٣'"),
        ("at 3s", "character 6: found the end, expected evict, kill or join"),
        ("at 3s evict 1 warn", "character 19: found the end, expected the seconds of the warning"),
        ("at 3s evict 1 warn 5", "character 20: found '5', expected the seconds of the warning"),
        (
            "at 3s kill 1 warn 5s",
            "character 14: found 'warn', expected ';' or the end (a kill comes without",
        ),
        ("at 3s join half", "character 12: found 'half', expected how many nodes join"),
        ("at 3s join 99999", "character 12: found '99999', expected at most 10,000 nodes"),
        ("every 0s kill 1", "character 7: found '0s', expected a period above 0"),
        ("every 0 clocks kill 1", "character 7: found '0', expected a period above 0"),
        ("every clock kill 1", "character 7: found 'clock', expected a period above 0"),
        (
            "every 3s kill 1 prob 1.5",
            "character 22: found '1.5', expected a probability from 0 to 1",
        ),
        ("every 3s kill 1 prob nan", "character 22: found 'nan'"),
        ("at 3s kill 1 at 4s kill 1", "character 14: found 'at', expected ';' or the end"),
    ],
)
def test_errors_name_the_text_and_its_position(text: str, message: str) -> None:
    with pytest.raises(BadArgument) as refused:
        Chaos.parse(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


WORDS = st.sampled_from(
    "at every clock clocks 1 2s kill half ; prob 0.3 warn evict join reliable controller".split()
)


@given(st.lists(WORDS | st.text(max_size=3)).map(" ".join))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        chaos = Chaos.parse(text)
    except BadArgument:
        return
    assert all(rule.when >= 0 for rule in chaos.rules)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(BadArgument, match="seed is -1"):
        Chaos.parse("", -1)


# -- the schedule ----------------------------------------------------------------------------------


def acts(
    text: str,
    *moments: tuple[int, float],
    machines: Sequence[RunningMachine] = MACHINES,
    seed: int = 0,
) -> list[Act]:
    schedule = FaultSchedule(Chaos.parse(text, seed))
    return [act for clock, seconds in moments for act in schedule.due(clock, seconds, machines)]


def names(act: Act) -> tuple[str, ...]:
    assert isinstance(act, Evict)
    return act.names


def test_a_rule_fires_once_and_not_early() -> None:
    schedule = FaultSchedule(Chaos.parse("at clock 3 join 2; at 5s kill controller"))
    assert not schedule.is_due(2, 4.9)
    assert schedule.due(2, 4.9, MACHINES) == []
    assert schedule.is_due(3, 4.9)
    assert schedule.due(3, 4.9, MACHINES) == [Join(2)]
    assert schedule.due(4, 5.0, MACHINES) == [KillController()]
    assert not schedule.is_due(10**6, 1e9)


def test_a_repeating_rule_makes_up_for_missed_occurrences() -> None:
    moments = ((0, 0.0), (1, 1.9), (2, 2.0), (3, 2.1), (9, 8.5))
    assert acts("every 2s join 1", *moments) == [Join(1)] * 4
    assert acts("every 3 clocks join 1 reliable", *moments) == [Join(1, reliable=True)] * 3


@pytest.mark.parametrize(
    ("whom", "chosen"),
    [
        ("1", 1),
        ("half", 3),
        ("all", 5),
        ("9", 5),
        ("1 reliable", 1),
        ("half reliable", 1),
        ("all reliable", 2),
    ],
)
def test_the_number_and_kind_of_chosen_nodes(whom: str, chosen: int) -> None:
    for what in ("kill", "evict"):
        (act,) = acts(f"at clock 1 {what} {whom}", (1, 0.0))
        assert len(set(names(act))) == chosen
        assert all(name.startswith("r" if "reliable" in whom else "t") for name in names(act))
        assert list(names(act)) == sorted(names(act))


def test_a_warned_node_is_not_warned_again_but_may_be_killed() -> None:
    warned = [
        RunningMachine("t0", reliable=False, warned=True),
        RunningMachine("t1", reliable=False, warned=False),
    ]
    assert acts("at 0s evict all warn 5s", (0, 0.0), machines=warned) == [Evict(("t1",), 5.0)]
    assert acts("at 0s kill all", (0, 0.0), machines=warned) == [Evict(("t0", "t1"), None)]
    assert acts("at 0s evict 1", (0, 0.0), machines=warned[:1]) == []
    assert acts("at 0s kill 1", (0, 0.0), machines=[]) == []


def test_rules_of_the_same_moment_choose_different_nodes() -> None:
    text = "at 1s kill half; at 1s evict all warn 1s; at 1s evict all warn 2s; at 1s kill all"
    first, second, third = acts(text, (0, 1.0))
    assert len(names(first)) == 3
    assert sorted(names(first) + names(second)) == [f"t{number}" for number in range(5)]
    assert names(third) == names(second)


def test_chance_depends_on_seed_rule_and_occurrence_alone() -> None:
    text, often = (
        "every 1s kill 1 prob 0.4; every 1s kill 1 prob 0.4",
        [(0, step / 7) for step in range(2000)],
    )
    rarely = [(0, float(second)) for second in range(1, 286)]
    assert acts(text, *often, seed=4) == acts(text, *rarely, seed=4)
    assert acts(text, *rarely, seed=4) != acts(text, *rarely, seed=5)
    both = acts(text, *rarely, seed=4)
    assert {names(act) for act in both} == {(f"t{number}",) for number in range(5)}
    # 570 draws at 0.4: five standard deviations are 58
    assert abs(len(both) - 228) < 58


def test_two_rules_draw_independently() -> None:
    schedule = FaultSchedule(Chaos.parse("every 1s join 1 prob 0.5; every 1s join 2 prob 0.5"))
    met = {tuple(schedule.due(0, float(second), MACHINES)) for second in range(1, 40)}
    assert met == {(), (Join(1),), (Join(2),), (Join(1), Join(2))}


@given(
    moments=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 3)), max_size=30),
    period=st.integers(1, 4),
    clocks=st.booleans(),
)
def test_every_occurrence_fires_exactly_once(
    moments: list[tuple[int, float]], period: int, clocks: bool
) -> None:
    times = list(summed(moments))
    found = acts(f"every {period} clocks join 1" if clocks else f"every {period}s join 1", *times)
    last = max((clock if clocks else seconds for clock, seconds in times), default=0)
    assert len(found) == last // period


def summed(steps: list[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    clock, seconds = 0, 0.0
    for by_clock, by_seconds in steps:
        clock, seconds = clock + by_clock, seconds + by_seconds
        yield clock, seconds
