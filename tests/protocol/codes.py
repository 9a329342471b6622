"""Codes of predictions."""

from fdml.protocol.fixed_point import INT64

LARGEST_CODE = INT64.largest_code(1)
"""Of a prediction of 64 bits."""
