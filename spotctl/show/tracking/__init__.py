"""Runs in an experiment tracker, MLflow or Weights & Biases: cost, machines, evictions and loss."""
