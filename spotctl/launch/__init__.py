"""A run put together from a plan, a provider and a runner, and how it is shown."""
