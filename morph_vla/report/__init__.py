"""One self-contained page about what an evaluation, or a whole demo, measured.

`write` turns records into `report.html`. It opens offline, loads nothing, and repeats no number it can
compute: rates and intervals come from the trials, through `morph_vla.results.statistics`. The layout is
`page.html.jinja`, the pictures are from `charts`.
"""

from morph_vla.report.page import FILE_NAME, MAX_BYTES, study_of, write

__all__ = ["FILE_NAME", "MAX_BYTES", "study_of", "write"]
