"""`morph-vla report FOLDER ...`."""

import argparse
from pathlib import Path

from morph_vla.cli.common import add, add_json
from morph_vla.cli.render import render
from morph_vla.errors import MorphVlaError
from morph_vla.results.record import FILE_NAME, Record, Study

EXAMPLES = """
  morph-vla report runs/demo
  morph-vla report runs/first/eval --inside can_in_mug:3
  morph-vla report runs/host/eval runs/mix/eval runs/film/eval -o runs/three.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla report`."""
    about = "a folder with a record.json of `eval` or `demo`; several make one page"
    add(parser, "folders", about, "FOLDER", nargs="+", type=Path)
    add(parser, "-o --output", "the page (default: report.html in the first folder)", "FILE", type=Path)
    about = "an episode that is played again, to show what goes on inside its policy: attention between "
    about += "joints, and the image tokens that are kept"
    add(parser, "--inside", about, "[TASK:]EPISODE", type=_episode)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write one page about one record or several, and print its path; with --json, its numbers too."""
    from morph_vla import report
    from morph_vla.report.numbers import numbers
    from morph_vla.results import record

    page = arguments.output
    if page is not None and (page.suffix.lower() not in (".html", ".htm") or page.is_dir()):
        raise MorphVlaError(f"-o {page}: a page is a file NAME.html")
    loaded = [record.load(given) for given in arguments.folders]
    if arguments.inside:
        loaded = [_inside(arguments.folders, loaded[0], *arguments.inside)]
    several = [(part,) if isinstance(part, record.Record) else part.evaluations for part in loaded]
    evaluations = [evaluation for part in several for evaluation in part]
    path = page or loaded[0].folder / report.FILE_NAME
    (study,) = loaded if len(loaded) == 1 else (evaluations,)
    report.write(path.parent, study, path)
    render(numbers(report.study_of(study)), arguments.json, text=path, report=path)


def _inside(given: list[Path], whole: Record | Study, task: str, episode: int) -> Record | Study:
    """The record, which names the files of what goes on inside; of a demo, its trained policy's."""
    from morph_vla import perception, process
    from morph_vla.results import record
    from morph_vla.serving import inside

    if len(given) > 1:
        raise MorphVlaError("--inside plays an episode of one record; name one FOLDER")
    process.prepare()
    last = record.read(given[0])
    files = inside.of_record(last, task, episode, whole.folder, perception.before).files
    inside.name_files(given[0] if given[0].is_file() else whole.folder / FILE_NAME, files)
    return record.load(given[0])


def _episode(text: str) -> tuple[str, int]:
    """`can_in_mug:3` or `3`."""
    task, _, episode = text.rpartition(":")
    if not episode.isdecimal():
        raise MorphVlaError(f"--inside expects EPISODE or TASK:EPISODE, for example 3, not '{text}'")
    return task, int(episode)
