"""Listeners of events: terminal, history, plots."""
