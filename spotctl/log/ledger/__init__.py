"""The ledger: what runs paid, and for what, as rows computed from the event log and the price
history alone.

`project` computes the rows from events; `spotctl.log.ledger_reader` reads the events and the
prices. `spotctl.show.costs` adds the rows up; where rows are kept in a file, it imports only
`rows`, which is much faster.
"""
