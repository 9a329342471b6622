"""Linear models and factorization machines that show their factors to other parties."""
