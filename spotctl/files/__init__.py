"""Readers of the files that users write: jobs, scenarios, allocation problems and throughputs."""
