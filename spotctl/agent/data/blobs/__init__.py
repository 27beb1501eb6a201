"""Storage that outlives machines: S3, Google Cloud Storage, Azure Blob Storage, or a path, behind one contract.

This package uses only the standard library: a machine has none of the clouds' clients, and an agent that starts often
must start fast (docs/decisions/0024-object-stores.md).
"""
