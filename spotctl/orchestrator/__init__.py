"""The orchestrator: what a run wants, what there is, and what is done about it, each step written down before it."""
