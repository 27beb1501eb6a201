"""The cloud Vast.ai, and the simulation of its API."""
