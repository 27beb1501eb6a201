"""Profiles as files."""

from __future__ import annotations

import pytest

from agileml.pipeline.profile.model_profile import (
    FORMAT,
    BadProfile,
    profiles_from_json,
)

LAYER = {
    "name": "a",
    "forward_seconds": 1,
    "backward_seconds": 2,
    "output_bytes": 1,
    "stash_bytes": 1,
}


def profile_file(**changes: object) -> dict[str, object]:
    run = {"microbatch": 2, "input_bytes": 4, "layers": [{**LAYER, "weight_bytes": 1}], **changes}
    return {"format": FORMAT, "model": "m", "profiles": [run]}


def test_a_profile_is_read() -> None:
    (profile,) = profiles_from_json(profile_file())
    assert (profile.model, profile.microbatch, profile.seconds) == ("m", 2, 3.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": "other"}, "is not a profile of this program"),
        ({"format": FORMAT, "profiles": []}, "profiles: expected a list"),
        (profile_file(layers=[]), "has no layers"),
        (profile_file(layers=[LAYER]), r"profiles.0.layers.0.weight_bytes is None"),
        (profile_file(layers=[7]), r"profiles.0.layers.0: expected an object"),
        (profile_file(microbatch="2"), "profiles.0.microbatch is '2'"),
        (profile_file(microbatch=0), "microbatch is 0"),
        (
            profile_file(layers=[{**LAYER, "weight_bytes": 1, "update_seconds": 3}]),
            "layers.0.update_seconds is 3",
        ),
        (
            profile_file(layers=[{**LAYER, "weight_bytes": 1, "update_seconds": {"sgd": -1}}]),
            r"layer 'a': update_seconds.sgd is -1.0",
        ),
        (
            profile_file(layers=[{**LAYER, "weight_bytes": float("nan")}]),
            "layer 'a': weight_bytes is nan",
        ),
        (
            profile_file(
                layers=[{**LAYER, "weight_bytes": 1, "forward_seconds": 0, "backward_seconds": 0}]
            ),
            "all layers take 0 seconds",
        ),
    ],
)
def test_foreign_profiles(content: object, message: str) -> None:
    with pytest.raises(BadProfile, match=message):
        profiles_from_json(content)
