"""A synthetic twin of the paper's app store data."""
