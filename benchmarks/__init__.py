"""Benchmarks of a checkout: ratios of two ways to do the same thing, measured side by side in one run.

They are no part of the installed package; `morph-vla bench` is their door, and `harness` what they share.
Absolute times of a CPU are not worth keeping; a ratio is, when both sides took turns on the same machine.
"""
