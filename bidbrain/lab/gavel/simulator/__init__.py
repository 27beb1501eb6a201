"""Round-by-round cluster simulation of a policy on a workload."""
