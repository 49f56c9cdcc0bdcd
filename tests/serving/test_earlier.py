"""A checkpoint as ef79165 wrote it (`golden/ef79165`) acts as it did; what cannot be read says what to do."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.training import restoring
from morph_vla.training import step as steps

pytestmark = pytest.mark.slow

WRITTEN = Path(__file__).with_name("golden") / "ef79165"


def test_a_checkpoint_as_ef79165_wrote_it_acts_as_it_did():
    policy, acted = CheckpointPolicy(WRITTEN), json.loads((WRITTEN / "actions.json").read_text())
    frame = np.arange(24 * 24 * 3, dtype=np.uint8).reshape(24, 24, 3)
    images = {f"images/{camera}": frame for camera in policy.cameras.values()}
    state = np.linspace(-0.3, 0.3, 8).astype(np.float32)
    answer = policy.infer(
        {**images, "state": state, "prompt": "put the cube in the bowl", "episode": 3, "step": 5}
    )
    np.testing.assert_allclose(answer["actions"], acted, atol=2e-5)


def test_a_new_run_can_begin_with_its_weights():
    assert weights.load(WRITTEN)[1].new == ()


def test_its_training_cannot_go_on_and_the_sentence_says_what_can(tiny_recipe):
    params = {"leaf": np.zeros(3, np.float32)}
    optimizer, _ = steps.make_optimizer(tiny_recipe.optimizer, 7)
    state = steps.start(params, optimizer, tiny_recipe.training)
    sentence = (
        f"{WRITTEN}: a checkpoint of an earlier morph_vla, which acts but cannot be trained on as it is; "
        f"begin a new run with its weights: weights={WRITTEN}"
    )
    with pytest.raises(MorphVlaError, match=f"^{re.escape(sentence)}$"):
        restoring.restore(WRITTEN, state)
