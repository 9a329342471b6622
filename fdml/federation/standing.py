"""Processes that stand by, of the server and of parties."""

STANDING = "standing"
"""The folder with the lock of such a process: there is one for each side."""
