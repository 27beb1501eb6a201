"""The providers' own bills, and what they say beside the ledger."""
