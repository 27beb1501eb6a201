"""Built-in training applications. Checking a job file imports this module, so it imports nothing."""

BUILT_IN = {
    "mf": "agileml.apps.mf:MatrixFactorization",
    "mlr": "agileml.apps.mlr:LogisticRegression",
    "lda": "agileml.apps.lda:TopicModel",
}
"""The built-in trainers by name."""
