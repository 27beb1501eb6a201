"""The `ray` engine: a job on the machines of a Ray cluster, which places, starts and ends its
nodes.
"""

from agileml.engines.ray.fleet import NodeShare, RayEngine

__all__ = ["NodeShare", "RayEngine"]
