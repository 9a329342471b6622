"""The linear model."""
