"""Ranking rows within their groups: pairs, what they pull, and how good an order is."""
