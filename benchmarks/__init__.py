"""Measurements: one file per question. Run one with `python -m benchmarks NAME`."""
