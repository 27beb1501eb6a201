"""Data folders of this computer in object stores: described, stored once, and removed when no job
has used them.
"""
