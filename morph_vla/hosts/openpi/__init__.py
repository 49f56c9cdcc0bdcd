"""pi0.5 with a body inside openpi's own trainer, data pipeline and server.

    python -m morph_vla.hosts.openpi list
    python -m morph_vla.hosts.openpi train pi05_morph_droid --exp-name first --data.repo-id me/my_droid
    python -m morph_vla.hosts.openpi serve policy:checkpoint --policy.config pi05_morph_droid --policy.dir ...

openpi's scripts run as they are; what is added is entered into its list of named configurations: a model
configuration (a `Pi0Config` whose model is ours, under openpi's parameter names), transforms that put the
robot's arrays into an observation, a weight loader that lets `morphology/...` start fresh, and the freeze
filter of action-expert fine-tuning.

`packing`, `pipeline` and `recipes` need no openpi; `model` and `configs` import it.
"""
