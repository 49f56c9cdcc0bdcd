"""lerobot-train as far as it is watched: options, log lines, checkpoints, an end before the last step.

`PROGRAM FILE OPTIONS`: FILE says in JSON what to do (`die_after`, `kill`, `policy`, `loss`), in FILE.calls is
what it was asked.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def main(plan: Path, words: list[str]) -> None:
    given = dict(word.removeprefix("--").split("=", 1) for word in words)
    asked = json.loads(plan.read_text())
    with plan.with_suffix(".calls").open("a") as calls:
        calls.write(json.dumps(given) + "\n")
    begun, checkpoints = 0, Path(given["output_dir"]) / "checkpoints"
    if "config_path" in given:
        if asked.get("refuse"):
            sys.exit("RuntimeError: no optimizer state")
        if asked.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        begun = int(Path(given["config_path"]).parents[1].resolve().name)
    print("INFO num_total_params=1234 (1K)", flush=True)
    steps, every, saved = (int(given[key]) for key in ("steps", "log_freq", "save_freq"))
    for step in range(begun + 1, steps + 1):
        sys.stderr.write(f"\rTraining:  10%|#   | {step - begun}/{steps} [00:01<00:02,  3.93step/s]")
        if step % every == 0:
            loss = asked.get("loss", f"{1 / step:.3f}")
            print(
                f"INFO step:{step} smpl:8 ep:1 loss:{loss} grdn:1.0 lr:1.0e-03 updt_s:1 smp/s:9", flush=True
            )
        if step % saved == 0 or step == steps:
            save(checkpoints, step, asked.get("policy"))
        if step == asked.get("die_after"):
            sys.exit("ValueError: out of luck")
        if step == asked.get("hang_after"):
            time.sleep(60)


def save(checkpoints: Path, step: int, policy: str | None) -> None:
    folder = checkpoints / f"{step:06d}" / "pretrained_model"
    if policy:
        shutil.copytree(policy, folder)
    else:
        folder.mkdir(parents=True)
    last = checkpoints / "last"
    last.unlink(missing_ok=True)
    last.symlink_to(f"{step:06d}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
