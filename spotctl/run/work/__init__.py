"""The work of a run's machines: a training, or a command on one machine or a gang."""
