"""Records to make reports of: one evaluation, one of several tasks, several of two runs, a whole demo."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from morph_vla import report
from morph_vla.report.reading import Evaluation, evaluations
from morph_vla.results.record import Record, from_json
from morph_vla.results.statistics import Summary, summarise
from morph_vla.results.trial import list_from_json

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
JOINTS = [f"panda_joint{i}" for i in range(1, 6)]


def write_page(folder: Path, plain: dict) -> Path:
    """The page of a record as it is read from a file in `folder`."""
    return report.write(folder, from_json(plain, folder))


def shown(plain: dict) -> tuple[Evaluation, ...]:
    """What a page shows of a record."""
    record = from_json(plain)
    return evaluations([record] if isinstance(record, Record) else record.evaluations)


def summary(outcomes: str) -> Summary:
    """Of one trial a letter."""
    return summarise(list_from_json(trials(outcomes), Path()))


def trials(outcomes: str, videos: str | None = None) -> list[dict]:
    """One trial a letter: s success, f failure, e error."""
    listed = []
    for episode, letter in enumerate(outcomes):
        success = letter == "s"
        listed.append(
            {
                "episode": episode,
                "success": success,
                "time_s": 3.1 + 0.17 * episode if success else None,
                "ended": {"s": "success", "f": "time", "e": "error"}[letter],
                "error": "the engine's state is not finite" if letter == "e" else None,
                "failed_clause": ["grasped", "inside"][episode % 2] if letter == "f" else None,
                "initial": {"cube": [0.5, 0.01 * episode, 0.2], "bowl": [0.4, -0.2, 0.0]},
                "video": f"{videos}/{episode:03d}.mp4" if videos else None,
            }
        )
    return listed


def evaluation(outcomes: str, name: str = "trained", videos: str | None = None) -> dict:
    listed = trials(outcomes, videos)
    return {
        "schema": 1,
        "kind": "evaluation",
        "suite": {
            "name": "droid_panda",
            "robot": "panda",
            "task": "put the cube in the bowl",
            "seed": 7,
        },
        "policy": {"name": name, "checkpoint": "checkpoints/7", "step": 7},
        "trials": listed,
        "summary": {"successes": outcomes.count("s"), "trials": len(listed), "errors": outcomes.count("e")},
        "command": "morph-vla eval droid_panda",
        "versions": {"python": "3.12.1"},
        "time": "2026-11-20T21:00:00Z",
    }


def demo(folder: Path) -> dict:
    """A whole demo record with every part, its files in `folder`."""
    (folder / "videos").mkdir()
    for episode in range(11):
        (folder / "videos" / f"{episode:03d}.mp4").write_bytes(b"not really a video" * (episode + 1))
    (folder / "joint_graph.png").write_bytes(PNG)
    near = [[abs(i - k) <= 1 for k in range(5)] for i in range(5)]
    weights = [[0.5 if i == k else 0.25 * near[i][k] for k in range(5)] for i in range(5)]
    layers = [{"layer": layer, "masked": layer % 2 == 0, "matrix": weights} for layer in range(3)]
    (folder / "attention.json").write_text(json.dumps({"joints": JOINTS, "layers": layers}))
    curve = [
        {"step": 10 * i, "loss": 2 / (i + 1), "lr": 1e-3, "held_out_loss": None if i % 7 else 2.1 / (i + 1)}
        for i in range(43)
    ]
    before, after = (
        evaluation("fffffffsfff", "untrained", "videos"),
        evaluation("ssssfssesss", videos="videos"),
    )
    joint = {"type": "revolute", "axis": [0, 0, 1], "lower": -2.9, "upper": 2.9}
    return {
        "schema": 1,
        "kind": "demo",
        "robot": {"name": "panda", "joints": [{"name": name, **joint} for name in JOINTS], "adjacency": near},
        "recording": {"episodes": 750, "attempted": 757, "dropped": 7, "frames": 43007, "fps": 15},
        "training": {
            "recipe": {"training": {"steps": 420}},
            "steps": 420,
            "parameters": 1013220,
            "parameters_by_part": {"action expert": {"trainable": 350110, "frozen": 13}},
            "seconds": 156.2,
            "curve": curve,
        },
        "evaluations": [before, after],
        "pictures": {"joint_graph": "joint_graph.png", "attention": "attention.json"},
        "machine": {"cpu": "2 cores"},
        "command": "morph-vla demo",
        "seconds_by_stage": {"recording": 212.4, "training": 156.2},
    }


def of_tasks(name: str, step: int, **outcomes: str) -> dict:
    """A record of schema 2 with several tasks, one letter an episode."""
    listed = [{**trial, "task": task} for task, letters in outcomes.items() for trial in trials(letters)]
    tasks = {task: {"task": f"put the {task} there", "initial_states_sha256": "0f" * 32} for task in outcomes}
    return {
        "schema": 2,
        "kind": "evaluation",
        "suite": {"name": "droid_panda", "version": 1, "seed": 7, "robot": "panda", "tasks": tasks},
        "policy": {"name": str(step), "checkpoint": f"runs/{name}/checkpoints/{step}", "step": step},
        "engine": {"name": "mujoco", "version": "4.0.0"},
        "trials": listed,
    }


def several_of_tasks() -> dict:
    records = [
        of_tasks("host", 100, can="ffsff", cube="sffff"),
        of_tasks("host", 300, can="sfsfs", cube="fesfs"),
        of_tasks("mix", 100, can="ssfsf", cube="fsssf"),
        of_tasks("mix", 300, can="sssss", cube="fssss"),
    ]
    return {"schema": 2, "kind": "evaluation", "evaluations": records}


def attention_over(steps: int) -> dict:
    """A file of attention at several steps: two layers of three joints, growing."""
    matrix = [[0.1, 0.2, 0.0], [0.3, 0.4, 0.1], [0.0, 0.2, 0.5]]
    layers = [{"layer": i, "masked": i == 0, "matrix": matrix} for i in range(2)]
    weights = [[[value * (k + 1) / steps for value in row] for row in matrix] for k in range(steps)]
    listed = [{"step": 8 * k, "time_s": 0.5 * k, "layers": [weights[k], weights[k]]} for k in range(steps)]
    near = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    return {
        "joints": ["a", "b", "c"],
        "adjacency": near,
        "layers": layers,
        "steps": listed,
        "episode": {"episode": 3},
    }


VOID = {"meta", "img", "br", "hr", "col", "input"}


class Page(HTMLParser):
    """The page as a list of (tag, attributes), its visible words, and every unbalanced tag."""

    def __init__(self, path: Path):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words, self.unbalanced, self.declared = "", [], ""
        self._open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        self.unbalanced += self._open

    def handle_decl(self, decl: str):
        self.declared = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> repeats an attribute"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str):
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(f"/{tag}")

    def handle_data(self, data: str):
        if not self._open or self._open[-1] not in ("style", "script"):
            self.words += data + " "

    def all(self, tag: str, class_: str | None = None) -> list[dict[str, str | None]]:
        matching = [attributes for name, attributes in self.tags if name == tag]
        return [a for a in matching if class_ is None or class_ in (a.get("class") or "").split()]


def written(folder: Path, record: dict) -> Page:
    path = write_page(folder, record)
    assert path == folder / "report.html"
    return Page(path)


def assert_closed(page: Page):
    """Balanced, and nothing in it leads out of the file."""
    assert page.declared == "doctype html"
    assert page.unbalanced == []
    assert "://" not in page.source
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "base", "form", "use")
        for name in ("src", "href", "poster", "srcset", "action", "data", "xlink:href"):
            assert re.match(r"#|data:(image|video)/", attributes.get(name) or "#"), (tag, name)
    assert re.findall(r"url\((?!#)|@import", page.source) == []
