"""Built-in training applications. Checking a job file imports this module, so it imports
nothing."""

BUILT_IN = {
    "mf": "agileml.apps.mf:MatrixFactorization",
    "mlr": "agileml.apps.mlr:LogisticRegression",
    "lda": "agileml.apps.lda:TopicModel",
}
"""The built-in trainers by name."""

FRAMEWORKS = {
    "lightning": "agileml.torch.lightning:made_by",
    "transformers": "agileml.torch.transformers:made_by",
}
"""By framework, the function that makes a trainer of what a user's function returns."""
