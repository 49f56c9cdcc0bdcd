"""A sheet of films: each in its place, its last frame in a picture, and all of them side by side in time."""

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

SCRIPT = "film_sheet"
WIDTH, HEIGHT = 64, 48  # films have even sides
RATES = {"UR5e": 15, "XArm7": 15, "IIWA": 15, "Sawyer": 30, "Panda": 15}
LAST = {"UR5e": 250, "XArm7": 120, "IIWA": 60, "Sawyer": 190, "Panda": 90}


@pytest.fixture
def films(tmp_path):
    """Four frames of black and then the last one; the Sawyer's at twice the rate."""
    made = {}
    for name, last in LAST.items():
        made[name] = tmp_path / f"{name}.mp4"
        with av.open(str(made[name]), "w") as container:
            stream = container.add_stream("mpeg4", rate=RATES[name])
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for shade in (0, 0, 0, 0, last):
                picture = np.full((HEIGHT, WIDTH, 3), shade, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
            container.mux(stream.encode())
    return made


def shades(page: np.ndarray, row: int) -> np.ndarray:
    return np.asarray([page[20 + at // 3 * row, 32 + at % 3 * WIDTH, 0] for at in range(5)], int)


def test_each_last_frame_is_in_its_place(films, script, tmp_path):
    script.write(films, tmp_path / "sheet.png", top=40)
    page = np.asarray(Image.open(tmp_path / "sheet.png"))
    row = 40 + script.LABEL
    assert page.shape == (2 * row, 3 * WIDTH, 3)
    np.testing.assert_allclose(shades(page, row), list(LAST.values()), atol=12)
    assert (page[row:, 2 * WIDTH :] == 255).all()  # nothing in the sixth place


def test_a_sheet_that_moves_has_every_film_in_its_own_time(films, script, tmp_path):
    script.write(films, tmp_path / "sheet.webp", columns=3)
    with Image.open(tmp_path / "sheet.webp") as film:
        pages = [np.asarray(page.convert("RGB")) for page in ImageSequence.Iterator(film)]
    # A third of a second, at 7.5 a second: at 0, 2 and 4 frames of 15, and at 0, 4 and 8 of 30.
    at = [shades(page, HEIGHT + script.LABEL) for page in pages]
    assert len(at) == 3
    np.testing.assert_allclose(at[0], [0] * 5, atol=16)
    np.testing.assert_allclose(at[1], [0, 0, 0, LAST["Sawyer"], 0], atol=16)
    np.testing.assert_allclose(at[2], list(LAST.values()), atol=16)


def test_pictures_can_be_made_smaller(script):
    pictures = {name: Image.new("RGB", (60, 40)) for name in "abcde"}
    assert script.sheet(pictures, width=30, columns=5).size == (150, 20 + script.LABEL)
    assert script.sheet(pictures, top=20, columns=2).size == (120, 3 * (20 + script.LABEL))


def test_a_film_without_a_name_is_refused(script, capsys, tmp_path):
    with pytest.raises(SystemExit):
        script.main(["a.mp4", "-o", str(tmp_path / "sheet.png")])
    assert "'a.mp4' has no name: NAME=FILM" in capsys.readouterr().err


def test_the_sheet_is_written(films, script, tmp_path, capsys):
    path, given = tmp_path / "sheet.png", [f"{name}={film}" for name, film in films.items()]
    script.main([*given, "-o", str(path)])
    assert capsys.readouterr().out == f"{path}\n"
    with Image.open(path) as page:
        assert page.size == (3 * WIDTH, 2 * (HEIGHT + script.LABEL))
