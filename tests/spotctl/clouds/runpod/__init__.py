"""The cloud RunPod, and the simulation of its API."""
