"""Listeners of events: terminal, history file, JSON log; the status of a run; plots of finished ones."""
