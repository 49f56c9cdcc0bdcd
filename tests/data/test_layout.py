"""What the meta files say: episodes, and the names of values."""

import json

import numpy as np
import pytest

from morph_vla.data import info, layout
from morph_vla.errors import MorphVlaError


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_an_episode_that_is_listed_twice_is_refused(write_dataset, version):
    """Its rows would be read twice, and one of the two might be held out while the other is learnt."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset(version, [values] * 3)
    if version == "v2.1":
        path = root / "meta/episodes.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines, lines[1]]))
    else:
        (path,) = (root / "meta/episodes").rglob("*.parquet")
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table, table.slice(1, 1)]), path)
    with pytest.raises(
        MorphVlaError, match=rf"^{root}: the meta files list episode 1 twice; remove one of them$"
    ):
        layout.read(root)


def test_more_episodes_than_can_be_there_are_not_looked_for(write_dataset):
    values = {key: np.ones((3, 2)) for key in ("observation.state", "action")}
    root = write_dataset("v2.1", [values])
    (root / "meta/episodes.jsonl").unlink()
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "total_episodes": 10**8}))
    words = r"meta/episodes\.jsonl is missing, and info\.json says 100,000,000 episodes; without it no more"
    with pytest.raises(MorphVlaError, match=words):
        layout.read(root)


@pytest.mark.parametrize(
    ("names", "read"),
    [
        ({"b": 1, "a": 0, "c": 2}, ("a", "b", "c")),  # as JSON with sorted or shuffled keys has it
        ({"a": 0}, ("a",)),
        ({"b": 7, "a": 9}, ("b", "a")),  # no places: as they come
        ({"motors": ["b", "a"]}, ("b", "a")),
        ([["b", "a"]], ("b", "a")),
        ({"axes": None}, ()),
    ],
)
def test_names_stand_where_their_places_say(names, read):
    assert info.names_of(names) == read
