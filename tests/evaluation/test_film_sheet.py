"""A sheet of films: each one's last frame in its place, and nothing of the frames before."""

import av
import numpy as np
import pytest
from PIL import Image

SCRIPT = "film_sheet"
WIDTH, HEIGHT = 64, 48  # films have even sides


@pytest.fixture
def films(tmp_path):
    made = {}
    for name, last in (("UR5e", 250), ("XArm7", 120), ("IIWA", 60), ("Sawyer", 190), ("Panda", 90)):
        made[name] = tmp_path / f"{name}.mp4"
        with av.open(str(made[name]), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for shade in (0, 0, last):
                picture = np.full((HEIGHT, WIDTH, 3), shade, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
            container.mux(stream.encode())
    return made


def test_each_last_frame_is_in_its_place(films, script):
    page = np.asarray(script.sheet(films, top=40))
    row = 40 + script.LABEL
    assert page.shape == (2 * row, 3 * WIDTH, 3)
    shades = [page[20 + place // 3 * row, 32 + place % 3 * WIDTH, 0] for place in range(5)]
    np.testing.assert_allclose(np.asarray(shades, int), [250, 120, 60, 190, 90], atol=12)
    assert (page[row:, 2 * WIDTH :] == 255).all()  # nothing in the sixth place


def test_a_film_without_a_name_is_refused(script, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["film_sheet", "a.mp4", "-o", str(tmp_path / "sheet.png")])
    with pytest.raises(SystemExit):
        script.main()
    assert "'a.mp4' has no name: NAME=FILM" in capsys.readouterr().err


def test_the_sheet_is_written(films, script, monkeypatch, tmp_path):
    path, given = tmp_path / "sheet.png", [f"{name}={film}" for name, film in films.items()]
    monkeypatch.setattr("sys.argv", ["film_sheet", *given, "-o", str(path)])
    script.main()
    with Image.open(path) as page:
        assert page.size == (3 * WIDTH, 2 * (HEIGHT + script.LABEL))
