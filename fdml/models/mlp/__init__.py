"""The multi-layer perceptron."""
