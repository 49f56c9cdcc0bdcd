"""The parts that slow tests are run in: none is in two, none is left out, none is much smaller."""

from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from slow_parts import Part, left_out, part

COUNT = 4


def test_every_test_file_is_in_one_part(root: Path):
    paths = [path.relative_to(root).as_posix() for path in root.glob("tests/**/test_*.py")]
    parts = [Part(index, COUNT) for index in range(1, COUNT + 1)]
    assert all(sum(part.holds(path) for part in parts) == 1 for path in paths)
    shares = [sum(part.holds(path) for path in paths) / len(paths) for part in parts]
    assert min(shares) > 0.15


def test_one_part_of_one_is_all():
    assert part("1/1").holds("tests/test_house.py")
    assert part("2/3") == (2, 3)


@pytest.mark.parametrize("text", ["", "2", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b"])
def test_what_is_no_part_is_refused_in_words(text):
    with pytest.raises(ArgumentTypeError, match=rf"a part is K/N with K from 1 to N, as 2/3; got '{text}'"):
        part(text)


def test_slow_tests_of_other_parts_are_left_out_and_quick_ones_never(request):
    """Seen on tests of this run: this one, of part 2 of 3, and it with the mark."""
    parent = request.node.parent
    names = ("quick", "slow")
    quick, slow = (pytest.Function.from_parent(parent, name=name, callobj=lambda: None) for name in names)
    slow.add_marker(pytest.mark.slow)
    left = [left_out([quick, slow], Part(index, 3)) for index in (1, 2, 3)]
    assert left == [[slow], [], [slow]]
