"""`morph-vla`: its help, its words for a wrong command, its exit statuses; and `morph-vla doctor`."""

import contextlib
import errno
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

from morph_vla import cli, doctor
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.files import dropin


def test_help_names_every_command(run):
    status, out, _ = run("--help")
    assert status == 0
    for name, (summary, _) in cli.COMMANDS.items():
        assert f"    {name} " in out
        assert summary.split(",")[0][:40] in out
    assert run("") == (status, out, "")


def test_version(run):
    assert run("--version") == (0, f"morph-vla {cli.__version__}\n", "")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_shows_examples_that_it_understands(run, command):
    status, out, _ = run(f"{command} --help")
    assert status == 0
    examples = importlib.import_module(cli.COMMANDS[command][1]).EXAMPLES.strip().splitlines()
    assert examples
    for example in examples:
        assert example in out
        words = shlex.split(example, comments=True)
        assert words[:2] == ["morph-vla", command]
        assert callable(cli.build_parser(command).parse_args(words[1:]).run)


@pytest.mark.parametrize(
    ("command", "key", "kind"),
    [
        ("recipes", "name", "recipes"),
        ("train", "recipe", "recipes"),
        ("suites", "name", "suites"),
        ("record", "suite", "suites"),
        ("eval", "suite", "suites"),
        ("robots", "robot", "robots"),
    ],
)
def test_the_files_that_help_names_are_there(command, key, kind):
    every = importlib.import_module(cli.COMMANDS[command][1]).EXAMPLES.strip().splitlines()
    examples = [example for example in every if " new " not in example]  # which is to be there afterwards
    parser = cli.build_parser(command)
    parsed = [parser.parse_args(shlex.split(example, comments=True)[1:]) for example in examples]
    given = [name for name in (getattr(namespace, key, None) for namespace in parsed) if name]
    named = {re.split("[@:]", name)[0] for name in given if "/" not in name}  # a path is the user's own file
    assert named
    assert named <= dropin.available(kind).keys()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("robot list", "no command 'robot'; did you mean 'robots'? (doctor, robots, "),
        ("fly", "no command 'fly' (doctor, robots, "),
        (
            "robots lst",
            "no 'lst' here; did you mean 'list'? (list, show, draw, check, add, vary) (see",
        ),
        ("serve x --unit foo", "no 'foo' for --unit (robot, radians, degrees, percent) (see morph-vla serve"),
        (
            "serve x --preset droid_velocity",
            "no 'droid_velocity' for --preset (droid, ",
        ),
        ("serve x --folder nowhere", "no such folder: nowhere"),
        ("serve x --wait 1e13", "--wait must be at most 60,000, not 1e13"),
        ("robots", "the following arguments are required: VERB (see morph-vla robots --help)"),
        ("robots show", "the following arguments are required: ROBOT (see morph-vla robots show --help)"),
        ("robots list --jsn", "no option --jsn; did you mean '--json'? (see morph-vla robots list --help)"),
        ("doctor now", "unrecognized arguments: now (see morph-vla doctor --help)"),
        ("robots show pnda", "no robot 'pnda'; did you mean 'panda'? (the robots are "),
        ("suites show --folder /nowhere x", "no such folder: /nowhere"),
    ],
)
def test_a_wrong_word_is_one_sentence_and_status_2(run, line, sentence):
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {sentence}")
    assert err.count("\n") == 1


def raising(error):
    def run(_):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MorphVlaError("the cube is not there"), 2, "error: the cube is not there\n"),
        (MissingExtraError("'mujoco' is not installed"), 2, "error: 'mujoco' is not installed\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
    ],
)
def test_what_a_user_can_cause_is_no_traceback(run, monkeypatch, error, status, words):
    monkeypatch.setattr(doctor, "checks", lambda: raising(error)(None))
    assert run("doctor") == (status, "", words)


@pytest.mark.parametrize("command", ["suites check so101_pick_orange", "train demo -o there", "doctor"])
def test_an_interruption_promises_what_the_command_keeps(run, monkeypatch, command):
    monkeypatch.setattr(cli, "_run", lambda *_: raising(KeyboardInterrupt())(None))
    kept = ": what is finished is kept; the same command goes on" if command.startswith("train") else ""
    assert run(command) == (130, "", f"\ninterrupted{kept}\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_that_an_extension_being_imported_drops(run, monkeypatch, number, status):
    def importing():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise ImportError("numpy._core.multiarray failed to import") from None

    monkeypatch.setattr(doctor, "checks", importing)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's would be ignored
    try:
        assert run("doctor")[0] == status
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_library_that_fails_to_import_by_itself_is_a_traceback(run, monkeypatch):
    monkeypatch.setattr(doctor, "checks", lambda: raising(ImportError("libEGL.so.1 is broken"))(None))
    with pytest.raises(ImportError, match="libEGL"):
        run("doctor")


def test_a_mistake_of_ours_is_a_traceback(run, monkeypatch):
    monkeypatch.setattr(doctor, "checks", lambda: raising(ZeroDivisionError("ours"))(None))
    with pytest.raises(ZeroDivisionError, match="ours"):
        run("doctor")


def test_a_reader_that_has_seen_enough_is_no_error():
    line = f"{shlex.quote(sys.executable)} -m morph_vla.cli --help | true; exit ${{PIPESTATUS[0]}}"
    for buffered in ("", "1"):  # with "1" each write meets the closed pipe, with "" the last flush does
        unbuffered = {**os.environ, "PYTHONUNBUFFERED": buffered}
        ended = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, check=False, env=unbuffered
        )
        assert (ended.returncode, ended.stderr) == (0, "")


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "morph_vla.cli", "robots", "show", "pnda"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: no robot 'pnda'; did you mean 'panda'?")


def test_doctor_prints_one_line_each_and_fails_only_for_what_is_needed(run, monkeypatch):
    result = (
        doctor.Check("Python", "3.12.1"),
        doctor.Check("extra 'isaaclab'", "not installed: isaaclab", "pip install it", needed=False),
    )
    monkeypatch.setattr(doctor, "checks", lambda: result)
    status, out, _ = run("doctor")
    assert status == 0
    assert out.splitlines() == [
        "ok      Python            3.12.1",
        "absent  extra 'isaaclab'  not installed: isaaclab -> pip install it",
    ]
    missing = doctor.Check("EGL", "no libEGL.so.1", "apt-get install libegl1")
    monkeypatch.setattr(doctor, "checks", lambda: (missing,))
    assert run("doctor") == (1, "MISSING EGL  no libEGL.so.1 -> apt-get install libegl1\n", "")
    status, out, _ = run("doctor --json")
    assert status == 1
    assert [(row["name"], row["remedy"], row["ok"]) for row in json.loads(out)] == [
        ("EGL", "apt-get install libegl1", False)
    ]


def test_a_disk_that_is_full_is_one_sentence(tmp_path, monkeypatch, capsys):
    def full(arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "rows.json"))

    monkeypatch.setattr("morph_vla.cli.doctor.run", full)
    status = cli.main(["doctor"])
    assert (status, capsys.readouterr().err) == (2, f"error: {tmp_path}/rows.json: No space left on device\n")


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", r"\xe9"), ("utf-8", "é")])
def test_names_that_the_terminal_has_no_letters_for_are_escaped(tmp_path, encoding, shown):
    (tmp_path / "é.urdf").write_bytes(dropin.find("robots", "so101").read_bytes())
    command = [sys.executable, "-m", "morph_vla.cli", "robots", "list", "--folder", str(tmp_path)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert f"{shown} " in ended.stdout.decode(encoding)


def test_a_closed_stdout_is_nobodys_mistake():
    command = f"exec {shlex.quote(sys.executable)} -m morph_vla.cli robots list >&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
