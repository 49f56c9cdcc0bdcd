"""LeRobot as a host: our policies and suites under `lerobot-eval`, and its own under `morph-vla eval`.

`--env.discover_packages_path=morph_vla.hosts.lerobot` makes LeRobot import every module here, which registers
`--policy.type=morph_vla` and `--env.type=morph_vla`. The names `configuration_`, `modeling_` and `processor_`
are LeRobot's: it finds a policy by them.
"""
