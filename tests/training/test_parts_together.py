"""What several datasets of one training must have in common."""

import types

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.training import datasets
from morph_vla.training.part import Part


def part(name: str, *poses: str) -> Part:
    """A dataset of which only these names are known."""
    shown = Part.__new__(Part)
    asked, recordings = types.SimpleNamespace(dataset=name), types.SimpleNamespace(environment_names=poses)
    vars(shown).update(asked=asked, recordings=recordings)
    return shown


def test_the_same_poses_in_another_order_are_refused_with_the_first_value_that_differs():
    words = (
        r"^'observation\.environment_state': value 1 is 'cup x' in a and 'bowl x' in c; write the poses of"
    )
    with pytest.raises(MorphVlaError, match=words):
        datasets._check_order(
            [part("a", "y", "cup x", "bowl x"), part("b"), part("c", "y", "bowl x", "cup x")]
        )


def test_other_objects_and_no_objects_stand_together():
    datasets._check_order([part("a", "cup x", "bowl x"), part("b"), part("c", "can x", "bowl x"), part("d")])
