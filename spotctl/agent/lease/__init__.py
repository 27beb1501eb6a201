"""How long a machine and its job may run: leases, the cloud's notices, and the machine's own
deletion.
"""
