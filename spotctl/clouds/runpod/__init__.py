"""RunPod: GPUs in data centers and of hosts, rented as containers on demand or by bid."""
