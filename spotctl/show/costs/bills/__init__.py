"""Reading providers' bills and comparing them with the ledger."""
