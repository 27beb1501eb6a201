"""The `sim` engine: a job on simulated machines in virtual time."""

from agileml.engines.sim.fleet import SimulatedEngine

__all__ = ["SimulatedEngine"]
