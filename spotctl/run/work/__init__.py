"""What the machines of a run work on: a training, or a command on one machine or a gang."""
