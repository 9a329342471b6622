"""Boosted trees as a local model, grown by LightGBM."""
