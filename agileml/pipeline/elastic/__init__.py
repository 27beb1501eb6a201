"""The controller of an elastic pipeline as a state machine: which node holds what, as nodes come
and go.
"""
