"""Clusters simulated round by round: what a policy comes to on a workload."""
