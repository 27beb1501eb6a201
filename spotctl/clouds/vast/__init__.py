"""Vast.ai: GPUs of many hosts, of which interruptible ones go to the highest bid."""
