"""Running a job: the service loop, reconciliation, and the workloads."""
