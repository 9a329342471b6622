"""Attacks on a recorded run: what could anyone have found out who kept all that it saw?"""
