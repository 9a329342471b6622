"""Whole runs in virtual time, in which lines, disks and processes fail."""
