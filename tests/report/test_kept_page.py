"""The page's section of image tokens: every camera's picture, dark where nothing of it is kept."""

import json
import re
from pathlib import Path

import pytest
from report_records import demo, evaluation, write_page

PICTURE = "/9j/4AAQSkZJRg=="


def content(how: str = "ranking", keep: int = 2, weights: object = None) -> dict:
    """A file of two cameras with nine patches each, at two moments."""
    weights = weights or [1, 0, 0, 0, 1, 0, 0, 0, 0]
    shown = [{"picture": PICTURE, "weights": weights}] * 2
    steps = [{"step": 8 * i, "time_s": 0.5 * i, "cameras": shown} for i in range(2)]
    facts = {"how": how, "keep": keep, "patches": 9, "cameras": ["exterior", "wrist & hand"]}
    return {**facts, "steps": steps, "episode": {"task": "put it there", "episode": 3, "ended": "time"}}


def page(folder: Path, plain: object) -> str:
    """The page of an evaluation with this file."""
    (folder / "image_tokens.json").write_text(json.dumps(plain))
    return write_page(folder, {**evaluation("sfs"), "image_tokens": "image_tokens.json"}).read_text()


def section(source: str) -> str:
    (found,) = re.findall(r'<section class="kept">(.*?)</section>', source, re.DOTALL)
    return found


def test_patches_that_are_not_read_are_dark(tmp_path: Path):
    found = section(page(tmp_path, content()))
    assert found.count(f'href="data:image/jpeg;base64,{PICTURE}"') == 4
    assert found.count("2 of 9 patches are read") == 8  # title and label
    paths = re.findall(r'<path d="([^"]*)" class="veil" fill-opacity="0.8">', found)
    # Reading order: two right of the first; the ends of the second row; all of the third as one.
    dark = [(53.33, 0, 106.67), (0, 53.33, 53.33), (106.67, 53.33, 53.33), (0, 106.67, 160)]
    assert paths == ["".join(f"M{x:g} {y:g}h{w:g}v53.33h-{w:g}z" for x, y, w in dark)] * 4
    assert "reads 2 of each camera's 9 image tokens, those with the highest scores" in found.replace(
        "&#39;", "'"
    )
    assert "(put it there, episode 3: out of time)" in found
    assert [found.count(words) for words in ("step 8, 0.5 s", "wrist &amp; hand")] == [1, 2]


def test_of_mixtures_a_patch_is_the_darker_the_less_of_it_is_in_them(tmp_path: Path):
    found = section(page(tmp_path, content("learnt", 2, [4.0, 2.0, 0.0, *[4.0] * 6])))
    assert set(re.findall(r'class="veil" fill-opacity="([^"]*)"', found)) == {"0.4", "0.8"}
    assert "the darker a patch, the shorter its column in the mixing matrix" in found


def test_of_averages_the_squares_are_drawn_and_nothing_is_dark(tmp_path: Path):
    found = section(page(tmp_path, content("average", 9, [1.0] * 9)))
    assert "veil" not in found
    assert found.count('class="squares"') == 4
    assert "every patch counts the same, and none is left out" in found


def test_a_policy_that_reads_all_of_them_says_so(tmp_path: Path):
    found = section(page(tmp_path, {"how": "all", "keep": 9, "patches": 9}))
    assert "<svg" not in found
    assert "reads all 9 image tokens of each camera: this policy has no" in found
    assert "nothing is left out" in found


@pytest.mark.parametrize(
    "plain",
    [
        [],
        {},
        content("newest"),
        content(weights=[1.0] * 8),
        content(weights=["a"] * 9),
        {**content("average"), "keep": -1},
        {**content("average"), "keep": 10**17},
        {**content(), "steps": [{"cameras": 3}, 7]},
        {**content(), "steps": [{"cameras": [{"picture": '"><script>', "weights": [1.0] * 9}] * 2}]},
    ],
)
def test_malformed_files_are_left_out(tmp_path: Path, plain: object):
    assert "Image tokens that are kept" not in page(tmp_path, plain)


def test_everything_in_the_file_is_escaped(tmp_path: Path):
    evil = "<script>alert(1)</script>"
    plain = {**content(), "cameras": [evil, evil], "episode": {"task": evil, "episode": evil}}
    plain["steps"][0]["step"] = evil
    assert evil not in page(tmp_path, plain)


def test_a_demo_says_that_its_file_is_not_readable(tmp_path: Path):
    plain = demo(tmp_path)
    plain["pictures"]["image_tokens"] = "image_tokens.json"
    source = write_page(tmp_path, plain).read_text()
    assert "Not in this record, or not readable: the image tokens that are kept." in source
    (tmp_path / "image_tokens.json").write_text(json.dumps(content()))
    assert section(write_page(tmp_path, plain).read_text()).count("<svg") == 4
