"""The event log of runs, and what follows from it alone."""
