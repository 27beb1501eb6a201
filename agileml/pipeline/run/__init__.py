"""Training: nodes as state machines, run in virtual time (`sim`) or as processes (`local`)."""
