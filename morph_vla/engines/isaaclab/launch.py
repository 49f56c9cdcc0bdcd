"""Starting the program that an Isaac Lab simulation runs in: Kit for PhysX and RTX, none for Newton."""

import atexit
import contextlib
import dataclasses

from morph_vla.engines.isaaclab import assets, scene
from morph_vla.engines.isaaclab.options import KIT, Options
from morph_vla.errors import MorphVlaError, require

STARTED: list[Options] = []
"""In this process, with no room for contacts: that is the scene's"""


def start(options: Options) -> None:
    """Start what `options` need, once per process: before a scene is built, and until the process ends.

    Kit cannot be started twice in a process, and ends it when it is closed: raises MorphVlaError for another
    choice that needs it.
    """
    chosen = dataclasses.replace(options, contacts=0)
    if chosen in STARTED:
        return
    other = next(filter(_needs_kit, STARTED), None)
    if other is not None and _needs_kit(chosen):
        raise MorphVlaError(
            f"engine isaaclab: this process runs Kit for physics={other.physics}, renderer={other.renderer}, "
            f"device={other.device}, and it cannot be started twice; choose the same, or begin a new process"
        )
    _launch(options)
    STARTED.append(chosen)


def _needs_kit(options: Options) -> bool:
    return options.physics in KIT or options.renderer in KIT


def _launch(options: Options) -> None:
    app = require("isaaclab.app", assets.EXTRA)
    if options.physics == "ovphysx":
        _without_a_driver()
    arguments = {"headless": True, "device": options.device}
    running = contextlib.ExitStack()
    running.enter_context(app.launch_simulation(scene.runtime_cfg(options), arguments))
    atexit.register(running.close)


def _without_a_driver() -> None:
    """Let OvPhysX simulate on a processor where there is no NVIDIA driver.

    Isaac Lab puts its articulations' indices into memory that only the driver can pin; here it is ordinary.
    """
    warp = require("warp", assets.EXTRA)
    if not warp.is_cuda_available():
        processor = warp.get_device("cpu")
        processor.pinned_allocator = processor.default_allocator
