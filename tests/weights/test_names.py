"""The mapping between openpi's leaves and LeRobot's entries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import weights
from morph_vla.pi05 import Pi05Config
from morph_vla.weights import names
from morph_vla.weights.checkpoint import flat, nested


def test_every_entry_is_what_the_table_says(params, entries):
    """Against the second writing of the table in conftest."""
    made = {}
    for leaf, values in flat(params).items():
        for piece in names.lerobot_pieces(leaf, values.shape):
            made[piece.alias or piece.entry] = piece.to_entry(values[piece.index])
    assert made.keys() == entries.keys() - {names.EXPERT_HEAD}
    for name, values in made.items():
        np.testing.assert_array_equal(values, entries[name], err_msg=name)


def test_back_is_the_inverse(params):
    for leaf, values in flat(params).items():
        back = np.full_like(values, np.nan)
        for piece in names.lerobot_pieces(leaf, values.shape):
            back[piece.index] = piece.to_slice(piece.to_entry(values[piece.index]))
        np.testing.assert_array_equal(back, values, err_msg=leaf)


@pytest.mark.slow
@given(
    st.permutations(range(3)),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.sampled_from([(1, 2), (2, 1), (3,), (1, 1, 1)]),
)
def test_back_is_the_inverse_of_any_piece(axes, shape, groups):
    piece = names.Piece("e", (), shape, tuple(axes), groups)
    values = np.arange(np.prod(shape)).reshape(shape)
    entry = piece.to_entry(values)
    assert entry.shape == piece.entry_shape
    np.testing.assert_array_equal(piece.to_slice(entry), values)
    assert piece.is_plain == (tuple(axes) == (0, 1, 2) and groups == (1, 1, 1))


def test_the_full_model_has_the_hubs_812_tensors():
    sizes = [
        (piece.alias or piece.entry, piece.entry_shape)
        for leaf, shape in weights.leaf_shapes(Pi05Config()).items()
        for piece in names.lerobot_pieces(leaf, shape)
    ]
    entries = dict(sizes) | {names.EXPERT_HEAD: (257_152, 1024)}
    assert len(sizes) == 811
    assert len(entries) == 812
    assert sum(int(np.prod(shape)) for shape in entries.values()) == 3_616_757_520
    assert entries["action_in_proj.weight"] == (1024, 32)
    assert names.lerobot_config_of(entries).vit == Pi05Config().vit


def test_the_full_size_is_read_off_its_shapes():
    config = names.config_of(weights.leaf_shapes(Pi05Config()))
    assert config == Pi05Config()


@pytest.mark.parametrize(
    ("leaf", "part"),
    [
        ("PaliGemma/img/pos_embedding", "vision encoder"),
        ("PaliGemma/llm/embedder/input_embedding", "language model"),
        ("PaliGemma/llm/layers/mlp/linear", "language model"),
        ("PaliGemma/img/Transformer/encoderblock/LayerNorm_1/bias", "vision encoder"),
        ("PaliGemma/llm/layers/attn/q_einsum_1/w", "action expert"),
        ("PaliGemma/llm/final_norm_1/Dense_0/bias", "action expert"),
        ("time_mlp_in/bias", "projections"),
        ("morphology/film/kernel", "morphology"),
    ],
)
def test_parts(leaf, part):
    assert names.part_of(leaf) == part


def test_flat_and_nested_are_inverse(params):
    assert flat(nested(flat(params))).keys() == flat(params).keys()
