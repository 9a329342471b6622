"""What the compiled kernels of all kinds share."""
