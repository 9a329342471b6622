"""The factorization machine."""
