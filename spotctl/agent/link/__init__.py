"""The link between a machine's agent and its callers, and what is asked over it."""
