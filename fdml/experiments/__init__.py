"""Comparisons, estimators, the paper's tables."""
