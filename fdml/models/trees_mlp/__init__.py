"""Boosted trees and a multi-layer perceptron as one local model."""
