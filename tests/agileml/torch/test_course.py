"""Clocks of a training with validations: steps, and parts of a validation between them."""

from __future__ import annotations

from agileml.torch.course import Course, OptimizerStep, ValidationPart


def test_the_last_step_of_an_epoch_takes_what_is_left() -> None:
    course = Course(batches=5, accumulate=2, steps=7)
    assert (course.steps_of_epoch, course.epochs, course.clocks) == (3, 3, 7)
    assert course.step(2) == OptimizerStep(2, 0, 2, 4, ends_epoch=False)
    assert course.step(3) == OptimizerStep(3, 0, 4, 5, ends_epoch=True)
    assert course.step(4) == OptimizerStep(4, 1, 0, 2, ends_epoch=False)


def test_a_validation_comes_after_its_step_in_parts() -> None:
    course = Course(2, 1, steps=4, validated=(2, 4), validation_batches=3, at_once=2)
    work = [course.at(clock) for clock in range(1, course.clocks + 2)]
    assert work == [
        course.step(1),
        course.step(2),
        ValidationPart(0, 2, 0),
        ValidationPart(0, 2, 1),
        course.step(3),
        course.step(4),
        ValidationPart(1, 4, 0),
        ValidationPart(1, 4, 1),
        None,
    ]


def test_a_validation_before_the_first_step_has_no_step() -> None:
    course = Course(2, 1, steps=1, validated=(0,), validation_batches=1)
    assert course.at(1) == ValidationPart(0, 0, 0)
    assert course.at(2) == course.step(1)


def test_the_epoch_after_a_step_is_that_of_the_step() -> None:
    course = Course(batches=4, accumulate=2, steps=6)
    assert [course.epoch_after(step) for step in range(7)] == [0, 0, 0, 1, 1, 2, 2]
