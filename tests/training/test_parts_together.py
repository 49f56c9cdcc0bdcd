"""What several datasets of one training must have in common."""

import types

import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.training import datasets, resumed
from morph_vla.training.part import Part


def part(name: str, *poses: str) -> Part:
    """A dataset of which only these names are known, and zeros for poses."""
    shown = Part.__new__(Part)
    zeros = np.zeros((3, len(poses)), np.float32)
    asked = types.SimpleNamespace(dataset=name, robot="panda")
    recordings = types.SimpleNamespace(environment_names=poses, environment=zeros)
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


def test_poses_by_other_names_are_other_data_to_a_run_that_goes_on():
    known = resumed.poses_digest([part("a", "cup x", "bowl x")], "panda")
    assert resumed.poses_digest([part("b", "cup x", "bowl x")], "panda") == known
    assert resumed.poses_digest([part("a", "bowl x", "cup x")], "panda") != known
