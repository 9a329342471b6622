"""Prediction over HTTP at the asking party: Open Inference Protocol v2, many requests in one question."""
