"""The files that users write: job files, scenarios, problems and throughputs."""
