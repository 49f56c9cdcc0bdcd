"""Prompt and state as text, text as tokens, and where number embeddings start."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.pi05 import tokenizer

BYTES = tokenizer.BytesTokenizer()
BY_WORD = tokenizer.WordsTokenizer()
WORDS = st.sampled_from(
    ["Task: ", ", State:", ";\nAction: ", " -1", " 0", " 07", " 255", " 256", " 2555", "-1"]
)


@given(st.lists(st.text() | WORDS).map("".join))
def test_no_text_is_lost(text):
    ids = BYTES.encode(text)
    assert BYTES.decode(ids) == text
    assert ids[0] == 2
    assert all(4 <= i < BYTES.vocab for i in ids[1:])


@given(st.integers(-1, 255))
def test_a_number_is_one_token(number):
    assert BYTES.encode(f" {number}") == [2, BYTES.numbers + number]


@pytest.mark.parametrize("text", [" 256", " -2", " 007", "7", " 1000", " ٣", " 1٣"])
def test_other_numbers_are_bytes(text):
    assert BYTES.encode(text) == [2, *(4 + byte for byte in text.encode())]


def test_numbers_and_words_are_apart():
    ids = [BYTES.numbers + n for n in range(-1, 256)]
    words = [BYTES.encode(word)[1] for word in BYTES.words]
    assert ids == list(range(260, 517))
    assert words == [517, 518, 519]
    assert BYTES.vocab == 520


def test_a_prompt_of_eight_joints_takes_eleven_tokens_and_its_task():
    state = np.linspace(-1, 0.999, 8, dtype=np.float32)
    ids = BYTES.encode(tokenizer.prompt_text("go", state))
    assert len(ids) == 1 + len("go") + 11


@given(st.lists(st.text() | WORDS).map("".join))
def test_any_text_is_tokens_of_the_table(text):
    ids = BY_WORD.encode(text)
    assert ids[0] == 2
    assert all(4 <= i < BY_WORD.vocab for i in ids[1:])


def test_a_word_is_one_token_whatever_its_case_and_punctuation():
    assert BY_WORD.encode("Pick up, the BLOCK.") == BY_WORD.encode("pick up the block")
    assert len(BY_WORD.encode("pick up the block")) == 5


@given(st.integers(-1, 255))
def test_a_number_of_a_state_is_one_token_beside_words_too(number):
    assert BY_WORD.encode(f" {number}") == [2, BY_WORD.numbers + number]


@pytest.mark.parametrize("text", [" 256", " 007", "7", " 1000"])
def test_other_numbers_are_words(text):
    (token,) = BY_WORD.encode(text)[1:]
    assert 4 <= token < 4 + BY_WORD.rows


def test_the_words_of_the_suites_shipped_are_told_apart():
    from morph_vla.files import dropin
    from morph_vla.suites import suite

    names = list(dropin.available("suites"))
    texts = " ".join(task.task for name in names for task in suite.load_tasks(name))
    words = set(texts.lower().replace(".", "").split())
    assert len(words) > 15
    assert len({BY_WORD.encode(word)[1] for word in words}) == len(words)


def test_bins_of_the_state():
    values = [-1.01, -1.0, -0.9999, 0.0, 0.9999, 1.0, 2.0, np.nan]
    result = tokenizer.state_bins(np.array(values, np.float32))
    np.testing.assert_array_equal(result, [-1, 0, 0, 128, 255, 255, 255, 255])
    edges = np.linspace(-1, 1, 257)[:-1]
    np.testing.assert_array_equal(tokenizer.state_bins(edges + 1e-6), np.arange(256))


def test_the_prompt_is_the_one_pi05_was_trained_on():
    state = np.array([-1.0, 0.0, 1.5, -3.0, np.nan], np.float32)
    result = tokenizer.prompt_text("  pick_up\nthe cube ", state)
    assert result == "Task: pick up the cube, State: 0 128 255 -1 255;\nAction: "


def test_tokens_are_padded_on_the_right_with_zeros():
    ids, mask = tokenizer.tokenize(BYTES, "go", np.zeros(3, np.float32), 17)
    assert ids.dtype == np.int32
    assert mask.tolist() == [True] * 9 + [False] * 8
    assert ids[9:].tolist() == [0] * 8
    assert BYTES.decode(ids[:9].tolist()) == "Task: go, State: 128 128 128;\nAction: "


def test_a_long_prompt_is_cut_at_the_tail_with_a_warning(caplog):
    tokenizer._CUT.clear()
    with caplog.at_level(logging.WARNING, "morph_vla"):
        for _ in range(3):  # a policy meets it at every step
            ids, mask = tokenizer.tokenize(BYTES, "go", np.zeros(3, np.float32), 5)
    assert caplog.messages == ["prompt of 9 tokens is cut to the model's 5: 'go'"]
    assert mask.all()
    assert ids.tolist() == BYTES.encode(tokenizer.prompt_text("go", np.zeros(3, np.float32)))[:5]


def test_a_clients_prompts_do_not_fill_the_log(caplog):
    """Each on one line that prints, and no more than a hundred of them."""
    tokenizer._CUT.clear()
    with caplog.at_level(logging.WARNING, "morph_vla"):
        for i in range(tokenizer.SAID + 3):
            tokenizer.tokenize(BYTES, f"{i}\x1b[2J\nerror: disk is full" + "a" * 999, np.zeros(3), 5)
    assert len(caplog.messages) == tokenizer.SAID
    assert all(message.isprintable() and len(message) < 400 for message in caplog.messages)
    tokenizer._CUT.clear()


def test_a_state_is_read_before_it_is_padded():
    """Padding a state of 3 to 32 values would print 29 more bins, 128 each."""
    ids, mask = tokenizer.tokenize(BYTES, "go", np.zeros(3, np.float32), 50)
    longer, _ = tokenizer.tokenize(BYTES, "go", np.zeros(32, np.float32), 50)
    assert (mask.sum(), (ids == BYTES.numbers + 128).sum(), (longer == BYTES.numbers + 128).sum()) == (
        9,
        3,
        32,
    )


def test_the_tokenizers_names():
    assert tokenizer.load("bytes").name == "bytes"
    with pytest.raises(
        ConfigError,
        match=r"^tokenizer: 'byte' is not known; choose 'bytes', 'words', 'paligemma' or 'paligemma:SOURCE'; "
        r"did you mean 'bytes'\?$",
    ):
        tokenizer.load("byte")


def test_a_table_that_is_too_small_is_refused():
    tokenizer.check_vocab(BYTES, 520)
    with pytest.raises(
        ConfigError, match=r"^model\.vocab: 519 rows are too few for the 520 tokens of tokenizer 'bytes'$"
    ):
        tokenizer.check_vocab(BYTES, 519)


def test_a_checkpoint_knows_its_tokenizer_by_contents():
    about = tokenizer.describe(BYTES)
    assert (about["name"], about["vocab"], len(about["sha256"])) == ("bytes", 520, 64)
    tokenizer.check_same(about, BYTES, "here")
    tokenizer.check_same({**about, "name": "another name"}, BYTES, "here")
    tokenizer.check_same(None, BYTES, "here")
    with pytest.raises(
        MorphVlaError,
        match=r"^runs/7: trained with tokenizer 'paligemma' \(sha256 abababababab, 257152 tokens\); 'bytes' "
        r"is another \(sha256 [0-9a-f]{12}, 520 tokens\)$",
    ):
        tokenizer.check_same({"name": "paligemma", "sha256": "ab" * 32, "vocab": 257152}, BYTES, "runs/7")
    with pytest.raises(MorphVlaError, match=r"^runs/7: trained with tokenizer 'None' \(sha256 None, None"):
        tokenizer.check_same({"sha256": None}, BYTES, "runs/7")  # a stranger's file


def test_numbers_start_smooth_and_other_rows_as_they_were():
    table = np.random.default_rng(0).normal(0, 0.3, (BYTES.vocab + 3, 13)).astype(np.float32)
    result = tokenizer.smooth_numbers(table, BYTES)
    numbers = np.arange(260, 517)
    others = np.setdiff1d(np.arange(len(table)), numbers)
    np.testing.assert_array_equal(result[others], table[others])
    rows = result[numbers]
    assert abs(rows.std() / table.std() - 1) < 0.1
    one, two, far = (np.linalg.norm(rows[n:] - rows[:-n], axis=1).mean() for n in (1, 2, 101))
    assert one < two < far
    assert len(np.unique(rows.round(4), axis=0)) == 257
    assert not np.shares_memory(result, table)


def test_numbers_start_smooth_beside_words_too():
    table = np.random.default_rng(0).normal(size=(BY_WORD.vocab, 24)).astype(np.float32)
    result = tokenizer.smooth_numbers(table, BY_WORD)
    own = slice(BY_WORD.numbers - 1, BY_WORD.numbers + 256)
    assert not np.array_equal(result[own], table[own])
    np.testing.assert_array_equal(np.delete(result, own, 0), np.delete(table, own, 0))


def test_another_tokenizers_table_is_left_alone():
    class Other:
        name, sha256, vocab = "other", "", 7

        def encode(self, text: str) -> list[int]:
            return [2]

    table = np.ones((7, 5), np.float32)
    np.testing.assert_array_equal(tokenizer.smooth_numbers(table, Other()), table)
