"""Lengths of prompts that a policy has programs for: what fits, what is answered, what a server compiles."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.pi05.tokenizer import OFFLINE, prompt_text
from morph_vla.serving.client import WebsocketClientPolicy
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.programs import prompts_of_each_length
from morph_vla.serving.remote import ServedPolicy
from morph_vla.serving.requests import examples
from morph_vla.serving.server import of
from morph_vla.serving.settings import Settings

WORD = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=11)
TEXT = st.lists(WORD, max_size=7).map(" ".join)
MOST = 83


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(OFFLINE)),
    st.lists(TEXT, max_size=3),
    st.integers(1, 13).flatmap(lambda n: st.lists(st.floats(-3, 3), min_size=n, max_size=n)),
    st.integers(1, 211),
)
def test_every_known_prompt_fits_the_shortest_and_each_text_its_own_length_in_any_state(
    name, texts, state, most
):
    tokenizer = OFFLINE[name]()

    def tokens(text: str) -> int:
        return len(tokenizer.encode(prompt_text(text, np.array(state))))

    prompts = prompts_of_each_length(tokenizer, texts, len(state), most)
    short, *rest = prompts
    assert max(prompts) == most
    assert not rest or short % 32 == 0
    assert all(tokens(text) <= short for text in texts) or not rest
    for length in rest:
        assert short < tokens(prompts[length]) <= length


@pytest.mark.parametrize(
    ("texts", "most", "lengths"),
    [
        (["stack"], 200, (32, 200)),
        (["stack", " ".join(["stack"] * 9)], 200, (64, 200)),
        ([" ".join(["stack"] * 10), "stack"], 200, (96, 200)),
        ([], 200, (64, 200)),
        (["stack"], 32, (32,)),
        (["stack"], 33, (33,)),
    ],
)
def test_two_lengths_at_most_and_one_where_nothing_is_won(texts, most, lengths):
    """A token a letter; BOS, three fixed words and seven values are 11: nine times stack fills 64."""
    assert tuple(prompts_of_each_length(OFFLINE["bytes"](), texts, 7, most)) == lengths


@pytest.fixture(scope="module")
def roomy(tiny_run):
    """The checkpoint with room for prompts of MOST tokens, of any size and of a fixed one."""
    loaded = CheckpointPolicy(tiny_run.checkpoint).loaded
    loaded = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, max_tokens=MOST))
    return [
        CheckpointPolicy(tiny_run.checkpoint, batch=2, loaded=loaded, any_size=any_size)
        for any_size in (True, False)
    ]


def row(prompt: str, episode: int = 0) -> dict:
    rng = np.random.default_rng([episode, 3])
    pictures = {
        f"images/{name}": rng.integers(0, 256, (24, 24, 3), np.uint8) for name in ("exterior", "wrist")
    }
    state = rng.normal(size=8).astype(np.float32)
    return {**pictures, "state": state, "prompt": prompt, "robot": "panda", "episode": episode, "step": 0}


@pytest.mark.slow
def test_padding_is_left_out_where_a_shorter_length_holds_the_prompt(roomy, monkeypatch):
    """And the answers are those of whole prompts but for rounding; a batch has the length of its longest."""
    any_size, whole = roomy
    assert (tuple(any_size.prompts), tuple(whole.prompts)) == ((64, MOST), (MOST,))
    shapes, sample = [], any_size._sample
    monkeypatch.setattr(
        any_size, "_sample", lambda *given: (shapes.append(given[2].tokens.shape), sample(*given))[1]
    )
    short, long = row("put the cube in the bowl"), row("put the cube in the bowl, " * 2 + "please", 1)
    for asked in ([short], [long], [short, long]):
        for answer, other in zip(any_size.infer_batch(asked), whole.infer_batch(asked), strict=True):
            np.testing.assert_allclose(answer["actions"], other["actions"], rtol=1e-3, atol=1e-4)
    assert shapes == [(1, 64), (1, MOST), (2, MOST)]


@pytest.mark.slow
def test_a_server_compiles_every_length_before_it_is_ready(roomy):
    """No request waits for a compiler, and a record says that answers of this server differ by rounding."""
    policy, _ = roomy
    server = of(policy, settings=Settings(port=0))
    assert server.card.prompt_tokens == (64, MOST)
    with server.background(examples(server.card, policy.prompts.values())):
        compiled = policy._sample._cache_size()
        assert compiled == len(policy.sizes) * len(policy.prompts)
        with WebsocketClientPolicy("127.0.0.1", server.port) as client:
            for prompt in ("lift", "put the cube in the bowl, " * 2 + "please"):
                client.infer(row(prompt))
            one_length = dataclasses.replace(server.card, sizes=(2,), prompt_tokens=(MOST,))
            one_size = dataclasses.replace(server.card, sizes=(2,))
            batches = [ServedPolicy(client, known).describe()["batch"] for known in (one_length, one_size)]
        assert policy._sample._cache_size() == compiled
    assert batches == [2, None]
