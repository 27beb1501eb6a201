"""Market data: JSON, plots, and the plan of a fetch."""
