"""Suites: what is asked of a policy, with which objects, and what may differ between episodes."""
