"""Checkpoints: in a folder of the machine, and in storage that outlives machines."""
