"""One self-contained page about what an evaluation, or a whole demo, measured.

`write` turns a record (the JSON of `evaluation/rollout.py` or of the demo) into `report.html`. It opens
offline, loads nothing, and repeats no number it can compute: rates and intervals come from the trials,
through `morph_vla.results.statistics`.
"""

from morph_vla.report.page import FILE_NAME, MAX_BYTES, write

__all__ = ["FILE_NAME", "MAX_BYTES", "write"]
