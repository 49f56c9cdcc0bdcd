"""What the house rules are held against: floors, what rooms stand on and show, doors of engines."""

# From the ground up; a room may import those on lower floors.
FLOOR = {
    "files": 0,
    "robots": 1,
    "relatives": 2,
    "suites": 2,
    "engines": 3,
    "demonstrations": 4,
    "results": 1,
    "evaluation": 4,
    "report": 2,
    "morphology": 2,
    "pi05": 3,
    "policies": 4,
    "weights": 4,
    "data": 4,
    "recipes": 5,
    "training": 6,
    "serving": 7,
    "checks": 7,
    "sharing": 7,
    "perception": 7,
    "demo": 8,
    "hosts": 8,
    "evidence": 9,
    "cli": 10,
}
ROOMS = tuple(FLOOR)
# Rooms that stand on fewer than all below them: an evaluation runs where only a remote policy has the model.
ONLY = {
    "results": {"files"},
    "report": {"files", "results"},
    "relatives": {"files", "robots"},
    "suites": {"files", "robots"},
    "engines": {"files", "robots", "suites"},
    "demonstrations": {"files", "robots", "relatives", "suites", "engines", "results"},
    "evaluation": {"files", "robots", "suites", "engines", "results"},
    "policies": {"files", "robots", "morphology", "pi05"},
    "training": {"files", "robots", "morphology", "pi05", "policies", "weights", "data", "recipes"},
    "sharing": {"files", "pi05", "policies", "weights", "data", "recipes", "training", "results"},
    "serving": {
        "files",
        "robots",
        "morphology",
        "pi05",
        "policies",
        "weights",
        "data",
        "recipes",
        "training",
        "suites",
        "engines",
        "evaluation",
        "results",
    },
}

# An engine -> the files that may import it.
DOORS = {
    "lerobot": {
        "data/versions.py",
        "demonstrations/recording.py",
        "demonstrations/lerobot_writer.py",
        "engines/gymnasium/making.py",
        "hosts/lerobot/config_robot.py",
        "hosts/lerobot/configuration_morph_vla.py",
        "hosts/lerobot/environment.py",
        "hosts/lerobot/export.py",
        "hosts/lerobot/modeling_morph_vla.py",
        "hosts/lerobot/options.py",
        "hosts/lerobot/processor_morph_vla.py",
        "hosts/lerobot/robot.py",
        "hosts/lerobot/theirs.py",
        "hosts/lerobot/training.py",
    },
    "robosuite": {"engines/robosuite/theirs.py"},
    "gymnasium": {"engines/gymnasium/making.py", "hosts/gymnasium.py"},
    "mujoco": {"engines/mujoco/scene.py"},
    "mink": {"demonstrations/experts.py"},
    "isaaclab": {
        "engines/isaaclab/engine.py",
        "engines/isaaclab/launch.py",
        "engines/isaaclab/scene.py",
    },
    "isaaclab_newton": {"engines/isaaclab/scene.py"},
    "isaaclab_ov": {"engines/isaaclab/scene.py"},
    "isaaclab_physx": {"engines/isaaclab/scene.py"},
    "newton": set(),
    "warp": {"engines/isaaclab/launch.py", "engines/isaaclab/limits.py"},
    "pxr": {"engines/isaaclab/assets.py"},
    "urdf_usd_converter": {"engines/isaaclab/assets.py"},
    "openpi": {"hosts/openpi/model.py", "hosts/openpi/configs.py"},
    "openpi_client": set(),
    "robot_descriptions": {"robots/described.py"},
    "huggingface_hub": {"data/versions.py", "files/hub.py", "pi05/paligemma.py"},
    "jinja2": {"report/page.py"},
    "vla_eval": {"hosts/vla_eval.py"},
    "benchmarks": set(),  # of a checkout; `morph-vla bench` finds them there
}
# What other rooms, and users of the library, may import of a room beside the room itself.
PUBLIC = {
    "checks": "episode recipe",
    "cli": "",
    "data": "actions decoding frames idle layout lerobot mixture phases pictures pool presets recorded space "
    "stats transforms values versions video_times",
    "demo": "job words",
    "demonstrations": "attempts beginnings bodies check new_suite recording robosuite",
    "engines": "by_name engine episode films gymnasium.making gymnasium.probe gymnasium.reading "
    "gymnasium.stage hands mujoco.engine mujoco.mjcf mujoco.scene pool robosuite.arms "
    "robosuite.theirs robosuite.vector robosuite.world success workers",
    "evidence": "again answer check grid inside run status",
    "evaluation": "asking benchmark evaluate fit journal rollout sampler stepper",
    "files": "cache dropin home hub plain remote typed_yaml writing yaml_text",
    "hosts": "lerobot.export lerobot.options lerobot.theirs lerobot.training",
    "morphology": "arrays bias config poses tokens",
    "pi05": "augmentation config counts gemma head kept memory model observation paligemma parts realtime "
    "sampling serving tokenizer",
    "policies": "config parts text",
    "recipes": "ablations fitting held keys recipe",
    "report": "evidence numbers",
    "results": "cells comparison curves evidence films identity insides intervals merging modes record "
    "sequential several statistics trial values",
    "relatives": "draft trials vary",
    "robots": "adding bodies choose described descriptors draw examine geometry graph grasp inertia "
    "kinematics markup meshes mjcf parallel_jaw reach records robot screws side standing standpoint template "
    "text tool views",
    "serving": "activations bounds carried history inside keys policy remote requests server settings trials",
    "sharing": "push",
    "suites": "begin environment mounts new objects on_robot shapes suite tasks variation",
    "training": "begin_with checkpoint counted datasets estimate folder loop meaning measured memory part "
    "progress restoring saving sharding source statistics step trackers",
    "perception": "drawing fitting frames measuring",
    "weights": "checkpoint convert inspect lerobot_processors load packed recognise tensors",
}
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "torch", "transformers"}
WITHOUT_JAX = (
    "files",
    "robots",
    "relatives",
    "suites",
    "engines",
    "demonstrations",
    "evaluation",
    "results",
    "report",
)
