"""The only doors to the clouds' SDKs: credentials, clients, paging, retries, and one translation of each error.

`aws`, `gcp` and `azure` import their SDK, which takes up to several seconds: import them when they are first needed.
`settings` imports none.
"""
