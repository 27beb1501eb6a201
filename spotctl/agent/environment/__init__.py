"""The environment of a job's program on a machine: an interpreter, and the packages that it imports."""
