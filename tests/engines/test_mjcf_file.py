"""An MJCF file from a stranger: compiled within bounds, with nothing read outside its folder."""

from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError

pytest.importorskip("mujoco")
from morph_vla.engines.mujoco import mjcf

BODY = '<body><joint/><geom size="1"/></body>'
MESH = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\nf 1 3 4\nf 2 3 4\n"


NESTED = '<replicate count="30">'
COPIES = r"arm\.xml: its copies add more than 10000 elements$"


def write(path: Path, inside: str, root: str = "mujoco") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<{root}>{inside}</{root}>")
    return path


def test_files_of_its_own_folder_are_read(tmp_path: Path):
    write(tmp_path / "parts" / "body.xml", f"<worldbody>{BODY}</worldbody>", "mujocoinclude")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "tip.obj").write_text(MESH)
    mesh = '<compiler meshdir="assets"/><asset><mesh name="tip" file="tip.obj"/></asset>'
    more = '<worldbody><body><joint/><geom type="mesh" mesh="tip"/></body></worldbody>'
    path = write(tmp_path / "arm.xml", f'{mesh}<include file="parts/body.xml"/>{more}')
    assert mjcf.compiled(path).njnt == 2


def test_a_folder_above_may_be_given(tmp_path: Path):
    write(tmp_path / "common.xml", f"<worldbody>{BODY}</worldbody>", "mujocoinclude")
    path = write(tmp_path / "arm" / "arm.xml", '<include file="../common.xml"/>')
    assert mjcf.compiled(path, tmp_path).njnt == 1
    with pytest.raises(MorphVlaError, match=r"it names the file '../common.xml', which is outside of .*arm$"):
        mjcf.compiled(path)


@pytest.mark.parametrize(
    "inside",
    [
        '<include file="/etc/hostname"/>',
        '<include file="link.xml"/>',
        '<asset><mesh file="../outside/tip.obj"/></asset>',
        '<compiler meshdir="../outside"/><asset><mesh file="tip.obj"/></asset>',
        '<compiler assetdir="/"/><asset><texture type="cube" fileright="etc/hostname"/></asset>',
        '<asset><model name="m" file="../outside/arm.xml"/></asset>',
        '<asset><hfield name="h" file="/dev/zero"/></asset>',
    ],
)
def test_files_outside_are_refused(tmp_path: Path, inside: str):
    write(tmp_path / "outside" / "arm.xml", "")
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm" / "link.xml").symlink_to(tmp_path / "outside" / "arm.xml")
    path = write(tmp_path / "arm" / "arm.xml", f"{inside}<worldbody>{BODY}</worldbody>")
    with pytest.raises(MorphVlaError, match=r"arm\.xml: it names the file '.*', which is outside of .*arm$"):
        mjcf.compiled(path)


def test_an_included_file_is_held_to_the_same(tmp_path: Path):
    write(tmp_path / "parts.xml", '<asset><mesh file="/etc/hostname"/></asset>', "mujocoinclude")
    path = write(tmp_path / "arm.xml", f'<include file="parts.xml"/><worldbody>{BODY}</worldbody>')
    with pytest.raises(MorphVlaError, match="names the file '/etc/hostname', which is outside"):
        mjcf.compiled(path)


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("<worldbody><body>", "text that is not XML"),
        (f'<worldbody><replicate count="4000">{BODY}</replicate></worldbody>', COPIES),
        (f"<worldbody>{NESTED}{NESTED}{NESTED}{BODY}{3 * '</replicate>'}</worldbody>", COPIES),
        ('<worldbody><flexcomp type="grid" count="1000 1000 1000" name="f"/></worldbody>', COPIES),
        (f'<worldbody><replicate count="many">{BODY}</replicate></worldbody>', COPIES),
        ('<include file="gone.xml"/>', "gone.xml: cannot be read: No such file or directory"),
        (f"<worldbody><bdy>{BODY}</bdy></worldbody>", "arm.xml: MuJoCo cannot compile it: XML Error: Schema"),
        ('<asset><mesh file="gone.obj"/></asset>', "arm.xml: MuJoCo cannot compile it: Error: "),
        (f'<asset><mesh file="{"a" * 300}.obj"/></asset>', "arm.xml: MuJoCo cannot compile it: Error: "),
    ],
)
def test_what_does_not_compile_is_told_in_one_sentence(tmp_path: Path, inside: str, words: str):
    path = write(tmp_path / "arm.xml", inside)
    with pytest.raises(MorphVlaError, match=words) as error:
        mjcf.compiled(path)
    assert "\n" not in str(error.value)


REPLICATE = '<replicate count="{}">{}</replicate>'


@pytest.mark.parametrize(
    ("root", "part", "arm"),
    [
        ("mujocoinclude", "{}", '<worldbody>{}</worldbody>|<include file="part.xml"/>'),
        (
            "mujoco",
            "<worldbody>{}</worldbody>",
            '<asset><model name="part" file="part.xml"/></asset><worldbody>{}</worldbody>'
            '|<frame><attach model="part" prefix="a"/></frame>',
        ),
    ],
)
def test_copies_of_what_is_included_or_attached_are_counted(tmp_path: Path, root: str, part: str, arm: str):
    """An element of the body is there `count` times in its own file, and that as often in the other."""
    outside, inside = arm.split("|")
    path = write(tmp_path / "arm.xml", outside.format(REPLICATE.format(20, inside)))
    write(tmp_path / "part.xml", part.format(REPLICATE.format(20, BODY)), root)
    assert mjcf.compiled(path).njnt == 20 * 20
    write(tmp_path / "part.xml", part.format(REPLICATE.format(200, BODY)), root)
    with pytest.raises(MorphVlaError, match=COPIES):
        mjcf.compiled(path)


def attaching(name: str, replicate: int, *also: str) -> str:
    """A model whose body is there beside so many copies of another model; it names more of them."""
    models = "".join(f'<model name="{model}" file="{model}.xml"/>' for model in (name, *also))
    attach = REPLICATE.format(replicate, f'<frame><attach model="{name}" prefix="{name}"/></frame>')
    return f"<asset>{models}</asset><worldbody>{BODY}{attach}</worldbody>"


def test_a_model_that_is_attached_in_two_ways_is_counted_by_the_one_that_makes_more(tmp_path: Path):
    path = write(tmp_path / "arm.xml", attaching("hand", 7, "finger"))
    write(tmp_path / "finger.xml", f"<worldbody>{BODY}</worldbody>")
    write(tmp_path / "hand.xml", attaching("finger", 5))
    assert mjcf.compiled(path).njnt == 1 + 7 * (1 + 5)
    write(tmp_path / "finger.xml", f"<worldbody>{REPLICATE.format(300, BODY)}</worldbody>")
    with pytest.raises(MorphVlaError, match=COPIES):
        mjcf.compiled(path)


def test_models_that_attach_each_other_end(tmp_path: Path):
    write(tmp_path / "hand.xml", attaching("arm", 2))
    with pytest.raises(MorphVlaError, match=COPIES):
        mjcf.compiled(write(tmp_path / "arm.xml", attaching("hand", 2)))


def test_bounds(tmp_path: Path, monkeypatch):
    text = tmp_path / "dtd.xml"
    text.write_text("<!DOCTYPE mujoco []><mujoco/>")
    with pytest.raises(MorphVlaError, match="a document type or entity declaration"):
        mjcf.compiled(text)
    (tmp_path / "tip.obj").write_text(MESH)
    path = write(tmp_path / "arm.xml", '<asset><mesh file="tip.obj"/></asset>')
    monkeypatch.setattr(mjcf, "MAX_ASSETS", 10)
    with pytest.raises(MorphVlaError, match="its meshes and textures have more than 0 MiB"):
        mjcf.compiled(path)
    write(tmp_path / "more.xml", "", "mujocoinclude")
    monkeypatch.setattr(mjcf, "MAX_INCLUDES", 1)
    with pytest.raises(MorphVlaError, match="it includes more than 1 files"):
        mjcf.compiled(write(path, '<include file="more.xml"/>'))
