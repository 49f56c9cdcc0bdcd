"""Engines: worlds of a suite that can be stepped and seen, when a task is done, and what every engine owes.

Never imports JAX; each simulator stays behind its own door.
"""
