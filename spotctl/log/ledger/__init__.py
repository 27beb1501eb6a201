"""The ledger: what runs paid, and for what, as rows computed from the event log and the price history alone.

`project` computes them from events; `spotctl.log.ledger_reader` finds the events and the prices. `spotctl.show.costs`
adds them up; it imports only the values in `rows` where these are kept, because that is much quicker.
"""
