"""Suites, engines, experts, rollouts and their statistics.

Stands on `morph_vla.robots` alone and never imports JAX: a policy is anything with
`infer(observation) -> {"actions": ...}` (see `engine.Policy`), in this process or behind a socket.
"""
