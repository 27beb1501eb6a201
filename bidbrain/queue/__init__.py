"""The queue of jobs that share quotas: which of them hold machines in a round, and when each will
run.
"""
