"""Plans: where a model is cut, how often each stage is replicated, and what the planner
rejected."""
