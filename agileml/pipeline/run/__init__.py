"""Training: nodes as state machines, run in virtual time (`sim`) or on any fleet (`fleet_job`)."""
