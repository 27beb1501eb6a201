"""The product: command line, cloud adapters, orchestrator, ledger and reports."""
