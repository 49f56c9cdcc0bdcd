"""`python -m morph_vla.hosts.lerobot.watched OPTIONS`: lerobot-train, which ends with whoever started it.

Its standard input is a pipe that nothing is written to. Where the other end closes, also because that process
was killed outright, this one ends: it would go on in a folder that the next run begins in.
"""

import os
import runpy
import threading


def end_with_input() -> None:
    """Wait for the end of standard input, and end.

    Below Python's buffer, whose lock this thread would still hold when the training has ended.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, name="end with input", daemon=True).start()
    runpy.run_module("lerobot.scripts.lerobot_train", run_name="__main__", alter_sys=True)
