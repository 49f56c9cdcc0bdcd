"""Evaluation: a policy on a suite, over a fixed table of initial states, into a record.

A policy is anything with `infer(observation) -> {"actions": ...}` (`engines.engine.Policy`), in this process
or behind a socket. Never imports JAX.
"""
