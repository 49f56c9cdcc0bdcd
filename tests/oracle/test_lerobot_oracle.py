"""LeRobot's pi0.5 and ours on the same weights, which travel as checkpoints in both directions.

Tolerances: 1e-4 as LeRobot is shipped, 2e-5 with the time's embedding in float32, at values of order one.
"""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.pi05 import Observation, Pi05, init_params, loss, sample_actions
from morph_vla.pi05.model import interpolate
from morph_vla.weights import names
from morph_vla.weights.checkpoint import flat, nested

CLOSE = {"float64": 1e-4, "float32": 2e-5}
STEPS = 10


# ------------------------------------------------------------------------------------------- their side


def save_as_on_the_hub(policy: Any, folder: Path) -> Path:
    """The layout of `lerobot/pi05_base`: no prefix, the embedding only as lm_head."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    state = {name.removeprefix("model."): value for name, value in policy.state_dict().items()}
    state[names.HEAD] = state.pop(names.EMBEDDING)
    save_file(
        {name: value.contiguous().clone() for name, value in state.items()}, folder / "model.safetensors"
    )
    policy.config._save_pretrained(folder)
    return folder


def as_torch(theirs: SimpleNamespace, inputs: SimpleNamespace) -> tuple[list[Any], list[Any], Any, Any]:
    tensor = theirs.torch.from_numpy
    images = [tensor(image.transpose(0, 3, 1, 2).copy()) for image in inputs.images.values()]
    masks = [tensor(mask) for mask in inputs.masks.values()]
    return images, masks, tensor(inputs.tokens.astype(np.int64)), tensor(inputs.token_mask)


def their_training_step(theirs: SimpleNamespace, policy: Any, inputs: SimpleNamespace) -> tuple[Any, ...]:
    """Velocity, squared error, and the gradient of its mean by entry."""
    tensor, seen = theirs.torch.from_numpy, []
    hook = policy.model.action_out_proj.register_forward_hook(lambda _, __, out: seen.append(out))
    policy.zero_grad()
    chunk = tensor(inputs.actions), tensor(inputs.noise), tensor(inputs.time)
    value = policy.model.forward(*as_torch(theirs, inputs), *chunk)
    hook.remove()
    value.mean().backward()
    result = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    return seen[0].detach().numpy(), value.detach().numpy(), {n: g.numpy() for n, g in result.items()}


def their_actions(theirs: SimpleNamespace, policy: Any, inputs: SimpleNamespace) -> np.ndarray:
    noise = theirs.torch.from_numpy(inputs.noise)
    return policy.model.sample_actions(*as_torch(theirs, inputs), noise=noise, num_steps=STEPS).numpy()


# ------------------------------------------------------------------------------------------- our side


def observed(inputs: SimpleNamespace) -> Observation:
    return Observation(inputs.images, inputs.masks, inputs.tokens, inputs.token_mask)


def our_training_step(config: Any, params: Any, inputs: SimpleNamespace) -> tuple[Any, ...]:
    actions, noise, time = map(jax.numpy.asarray, (inputs.actions, inputs.noise, inputs.time))
    x, _ = interpolate(actions, noise, time)

    @partial(jax.grad, has_aux=True)
    def step(params: Any) -> Any:
        value = loss(config, params, observed(inputs), actions, noise[None], time[None])[0]
        return value.mean(), value

    model = partial(Pi05(config).apply, method=Pi05.velocity_joint)
    velocity = jax.jit(model)({"params": params}, observed(inputs), x, time)
    gradient, value = jax.jit(step)(params)
    return np.asarray(velocity), np.asarray(value), flat(gradient)


def our_actions(config: Any, params: Any, inputs: SimpleNamespace) -> np.ndarray:
    sample = jax.jit(partial(sample_actions, config), static_argnums=3)
    return np.asarray(sample(params, observed(inputs), jax.numpy.asarray(inputs.noise), STEPS))


# ------------------------------------------------------------------------------------------- the tests


def difference(one: Any, other: Any) -> float:
    return float(np.abs(np.asarray(one) - np.asarray(other)).max())


def test_velocity_loss_and_gradients_on_their_weights(
    theirs, inputs, odd, sinusoid, tmp_path, record_property
):
    policy = theirs.new(seed=1)
    params, report = weights.load(save_as_on_the_hub(policy, tmp_path / "hub"), odd)
    assert (len(report.loaded), report.new, report.unused) == (51, (), (names.EXPERT_HEAD,))
    velocity, value, gradient = their_training_step(theirs, policy, inputs)
    our_velocity, our_value, our_gradient = our_training_step(odd, params, inputs)
    most, compared = 0.0, 0
    for leaf, ours in our_gradient.items():
        ours = np.asarray(ours)
        largest = max(float(np.abs(ours).max()), 0.05 if leaf.endswith("key/bias") else 1e-6)
        for piece in names.lerobot_pieces(leaf, ours.shape):
            if piece.entry in gradient:
                compared += 1
                own = piece.to_entry(ours[piece.index])
                most = max(most, difference(gradient[piece.entry], own) / largest)
            else:  # parameters that LeRobot's loss does not reach
                assert not ours[piece.index].any(), piece.entry
    print(
        f"\n  time's embedding in {sinusoid}: velocity {difference(velocity, our_velocity):.1e}, loss "
        f"{difference(value, our_value):.1e}, gradients {most:.1e} of each leaf's largest"
    )
    assert np.abs(velocity).max() > 0.3
    assert difference(velocity, our_velocity) < CLOSE[sinusoid]
    assert difference(value, our_value) < 5 * CLOSE[sinusoid]
    assert most < 5 * CLOSE[sinusoid]
    assert compared >= 100


def test_actions_on_their_weights(theirs, inputs, odd, sinusoid, tmp_path):
    policy = theirs.new(seed=2)
    policy.save_pretrained(tmp_path / "own")  # LeRobot's own layout: a prefix, and two embeddings
    params, _ = weights.load(tmp_path / "own", odd)
    result = difference(their_actions(theirs, policy, inputs), our_actions(odd, params, inputs))
    print(f"\n  time's embedding in {sinusoid}: actions {result:.1e}")
    assert result < CLOSE[sinusoid]


@pytest.fixture
def ours(odd) -> Any:
    """Parameters of ours, none of them zero."""
    shapes = weights.leaf_shapes(odd)
    fresh = flat(init_params(odd, jax.random.key(4)))
    rng = np.random.default_rng(6)
    drawn = {n: np.asarray(fresh[n]) + 0.02 * rng.standard_normal(shapes[n], np.float32) for n in shapes}
    return nested(drawn)


def test_a_checkpoint_of_ours_is_loaded_strictly_by_their_class(
    theirs, inputs, odd, ours, tmp_path, sinusoid, capsys
):
    folder = weights.save_lerobot(tmp_path / "converted", ours, odd)
    config = theirs.Config.from_pretrained(folder)
    config.device = "cpu"
    policy = theirs.modeling.PI05Policy.from_pretrained(folder, config=config).eval()
    assert "All keys loaded successfully!" in capsys.readouterr().out
    # It swallows errors, so once more by hand: every name of its class, and no other.
    from safetensors.torch import load_file

    read = policy._fix_pytorch_state_dict_keys(load_file(folder / "model.safetensors"), policy.config)
    again = theirs.modeling.PI05Policy(config).eval()
    again.load_state_dict({f"model.{n.removeprefix('model.')}": v for n, v in read.items()}, strict=True)
    assert len(read) == len(again.state_dict())
    actions = their_actions(theirs, policy, inputs)
    np.testing.assert_array_equal(their_actions(theirs, again, inputs), actions)
    result = difference(actions, our_actions(odd, ours, inputs))
    with capsys.disabled():
        print(f"\n  time's embedding in {sinusoid}: actions of a converted checkpoint {result:.1e}")
    assert result < CLOSE[sinusoid]


def test_there_and_back_gives_the_same_actions_there(theirs, inputs, odd, tmp_path):
    """LeRobot -> openpi -> LeRobot: every parameter the policy uses, bit by bit."""
    policy = theirs.new(seed=3)
    params, _ = weights.load(save_as_on_the_hub(policy, tmp_path / "hub"), odd)
    openpi = weights.save_openpi(tmp_path / "openpi", params)
    back = weights.save_lerobot(tmp_path / "back", weights.load(openpi, odd)[0], odd)
    config = theirs.Config.from_pretrained(back)
    config.device = "cpu"
    again = theirs.modeling.PI05Policy.from_pretrained(back, config=config).eval()
    np.testing.assert_array_equal(their_actions(theirs, again, inputs), their_actions(theirs, policy, inputs))


def test_our_config_json_says_what_theirs_does(theirs, odd, tmp_path, ours):
    folder = weights.save_lerobot(tmp_path / "converted", ours, odd)
    written = json.loads((folder / "config.json").read_text())
    config = theirs.Config.from_pretrained(folder)
    assert (config.chunk_size, config.max_action_dim, config.tokenizer_max_length) == (5, 7, 20)
    assert tuple(config.image_resolution) == (42, 42)
    assert config.type == written["type"] == "pi05"
    assert list(config.image_features) == [f"observation.images.{name}" for name in odd.cameras]
