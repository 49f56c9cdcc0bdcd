"""The page in a real browser, on a laptop's and a phone's screen: no error, nothing beyond it, it moves."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from report_records import attention_over, demo, several_of_tasks, write_page

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), "")
pytestmark = pytest.mark.skipif(not BROWSER, reason="no chromium on PATH (Debian: apt-get install chromium)")

# Nothing that asks for a network, a display, or the user's own settings.
SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
)
SWITCHES += " --disable-component-update --disable-sync --virtual-time-budget=4000 --window-size=1500,900"

LISTEN = """<script>
  window.errors = [];
  addEventListener("error", function (e) { errors.push(e.message || "not loaded"); }, true);
  addEventListener("unhandledrejection", function (e) { errors.push(String(e.reason)); });
  addEventListener("securitypolicyviolation", function (e) { errors.push("refused " + e.blockedURI); });
</script>"""

ASK = """<pre id="answer"></pre><script>
  function state(frame) {
    var page = frame.contentDocument, slider = page.querySelector(".slider input");
    var shades = function () { return page.querySelectorAll(".shades")[0].innerHTML; };
    var answer = { wide: page.documentElement.scrollWidth, screen: frame.contentWindow.innerWidth };
    if (slider) {
      var before = shades();
      slider.value = slider.max;
      slider.dispatchEvent(new frame.contentWindow.Event("input"));
      answer.moved = before !== shades() && shades().indexOf("<path") === 0;
      answer.says = page.querySelector(".slider output").textContent;
    }
    var cell = page.querySelector("a.cell, button.cell");
    cell.click();
    answer.worded = page.getElementById(cell.dataset.line).textContent === cell.dataset.says;
    var chosen = page.querySelectorAll(".trip.chosen");
    answer.joined = chosen.length === 1 && chosen[0].dataset.trip === cell.dataset.trip &&
      frame.contentWindow.getComputedStyle(chosen[0].querySelector(".joined")).visibility === "visible";
    var cells = Array.from(cell.parentElement.children);
    cell.focus();
    var right = { key: "ArrowRight", bubbles: true };
    cell.dispatchEvent(new frame.contentWindow.KeyboardEvent("keydown", right));
    answer.stepped = page.activeElement === cells[1] && cells[0].tabIndex === -1 && cells[1].tabIndex === 0;
    answer.charts = Array.from(page.querySelectorAll("svg[role=img]")).filter(function (one) {
      return one.closest("details:not([open])") === null && one.getBoundingClientRect().width < 40;
    }).length;
    answer.errors = frame.contentWindow.errors;
    return answer;
  }
  addEventListener("load", function () {
    var frames = Array.from(document.querySelectorAll("iframe"));
    document.getElementById("answer").textContent = JSON.stringify(frames.map(state));
  });
</script>"""


def ended(command: list[str]) -> tuple[str, str]:
    """What a command printed on stdout and stderr; after two minutes it and its children end."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as browser:
        try:
            output, errors = browser.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(browser.pid, signal.SIGKILL)
            raise
    assert browser.returncode == 0, errors[-2000:]
    return output, errors


def seen(path: Path, folder: Path) -> list[dict]:
    """What the browser says of the page at a laptop's width and at a phone's."""
    source = path.read_text(encoding="utf-8").replace("<head>", f"<head>{LISTEN}", 1)
    assert LISTEN in source
    frames = "".join(
        f'<iframe srcdoc="{html.escape(source)}" style="width:{width}px;height:{height}px;border:0"></iframe>'
        for width, height in ((1366, 768), (390, 844))
    )
    around = folder / "around.html"
    around.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}{ASK}</body>", encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [BROWSER, *SWITCHES.split(), profile, "--dump-dom", around.as_uri()]
    output, errors = ended(command)
    answer = re.search(r'<pre id="answer">(.*?)</pre>', output, re.DOTALL)
    assert answer, errors[-2000:]
    return json.loads(html.unescape(answer.group(1)))


def check(answers: list[dict]) -> None:
    assert [answer["screen"] for answer in answers] == [1366, 390]
    for answer in answers:
        assert answer["errors"] == []
        assert answer["wide"] <= answer["screen"]  # no scrolling sideways
        assert answer["worded"] is True
        assert answer["joined"] is True  # the chosen episode's objects, on the map
        assert answer["stepped"] is True  # an arrow key
        assert answer["charts"] == 0


def test_a_demos_page_renders_without_errors_and_its_slider_moves(tmp_path: Path):
    record = demo(tmp_path)
    (tmp_path / "attention.json").write_text(json.dumps(attention_over(7)))
    for evaluation in record["evaluations"]:
        for trial in evaluation["trials"]:
            trial["video"] = None  # those of the fixture are no videos
    answers = seen(write_page(tmp_path, record), tmp_path)
    check(answers)
    assert [(answer["moved"], answer["says"]) for answer in answers] == [(True, "step 48, 3.0 s")] * 2


def test_a_page_of_several_tasks_and_records_renders_without_errors(tmp_path: Path):
    check(seen(write_page(tmp_path, several_of_tasks()), tmp_path))


def test_the_listener_hears_an_error(tmp_path: Path):
    path = write_page(tmp_path, several_of_tasks())
    path.write_text(path.read_text().replace("</body>", "<script>nothing.there()</script></body>"))
    assert all("nothing is not defined" in answer["errors"][0] for answer in seen(path, tmp_path))
