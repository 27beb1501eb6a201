"""The model's parameters: how they are partitioned, updated, viewed and committed."""
