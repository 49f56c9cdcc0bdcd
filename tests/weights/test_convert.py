"""Conversions there and back, and the command."""

import dataclasses
import errno
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.weights import lerobot as format_
from morph_vla.weights import tensors
from morph_vla.weights.checkpoint import flat, nested
from morph_vla.weights.convert import convert


def bits(path: Path) -> dict[str, bytes]:
    """Every tensor of a safetensors file, as the safetensors package reads it."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


@pytest.mark.slow
def test_openpi_to_lerobot_and_back(tmp_path, openpi, lerobot, host, params, equal):
    one = weights.save_lerobot(tmp_path / "one", weights.load(openpi, host)[0], host)
    assert bits(one / "model.safetensors") == bits(lerobot / "model.safetensors")
    two = weights.save_openpi(tmp_path / "two", weights.load(one)[0])
    loaded = weights.load(two, host)[0]
    equal(loaded, params)
    assert weights.digest(loaded) == weights.digest(params)


def test_lerobots_own_config_keeps_its_word(tmp_path, host, params):
    """Actions of a chunk, tokens and cameras are in no shape; whoever serves it reads them there."""
    one = weights.save_lerobot(tmp_path / "one", params, dataclasses.replace(host, horizon=37, max_tokens=77))
    said = json.loads((one / "config.json").read_text())
    said["input_features"].pop(f"observation.images.{host.cameras[-1]}")
    (one / "config.json").write_text(json.dumps(said))
    convert(one, tmp_path / "two", "lerobot")
    again = json.loads((tmp_path / "two" / "config.json").read_text())
    assert (again["chunk_size"], again["tokenizer_max_length"]) == (37, 77)
    assert again["input_features"].keys() == said["input_features"].keys()
    convert(one, tmp_path / "three", "lerobot", horizon=11)
    assert json.loads((tmp_path / "three" / "config.json").read_text())["chunk_size"] == 11
    (one / "config.json").write_text("{")
    with pytest.raises(MorphVlaError, match=r"config\.json cannot be read \("):
        convert(one, tmp_path / "four", "lerobot")
    assert not (tmp_path / "four").exists()


def test_the_digest_tells_values_names_and_types(params):
    seen = {weights.digest(params)}
    for change in (lambda x: x + np.float32(1e-3), lambda x: x.astype(np.float16), lambda x: x[None]):
        changed = flat(params) | {"time_mlp_in/bias": change(params["time_mlp_in"]["bias"])}
        seen.add(weights.digest(nested(changed)))
    leaves = flat(params)
    leaves["time_mlp_im/bias"] = leaves.pop("time_mlp_in/bias")
    seen.add(weights.digest(nested(leaves)))
    assert len(seen) == 5


def test_the_plugin_travels_with_lerobot_only_when_it_is_told_to(tmp_path, plugin, drawn, equal):
    whole = drawn(plugin)
    with pytest.raises(
        MorphVlaError, match=r"LeRobot's pi0.5 has no place for the plugin's \d+ leaves and would"
    ):
        weights.save_lerobot(tmp_path / "refused", whole, plugin)
    assert not (tmp_path / "refused").exists()
    folder = weights.save_lerobot(tmp_path / "kept", whole, plugin, keep_plugin=True)
    assert not any(name.startswith("morphology") for name in bits(folder / "model.safetensors"))
    equal(weights.load(folder, plugin)[0], whole)


@pytest.mark.parametrize("save", ["save_openpi", "save_morph_vla", "save_lerobot"])
def test_nothing_is_overwritten_and_nothing_is_left_half(tmp_path, host, params, save, monkeypatch):
    more = (host,) if save == "save_lerobot" else ()
    write = getattr(weights, save)
    write(tmp_path / "there", params, *more)
    with pytest.raises(
        MorphVlaError, match="there exists: nothing is overwritten; remove it or choose another"
    ):
        write(tmp_path / "there", params, *more)

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("shutil.copytree", full)
    monkeypatch.setattr("orbax.checkpoint.PyTreeCheckpointer.save", full)
    with pytest.raises(OSError, match="no space left"):
        write(tmp_path / "new", params, *more)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_ours_holds_both_kinds_once(tmp_path, host, params, equal):
    folder = weights.save_morph_vla(tmp_path / "ours", params)
    assert weights.open_checkpoint(folder).format == "morph_vla"
    for kind in ("averaged", "params"):
        equal(weights.load(folder, host, kind=kind)[0], params)


def test_config_json_at_full_size_names_lerobots_variants():
    from morph_vla.pi05 import Pi05Config

    full = Pi05Config(horizon=50)
    written = format_.config_json(full)
    assert (written["paligemma_variant"], written["action_expert_variant"]) == ("gemma_2b", "gemma_300m")
    assert (written["chunk_size"], written["max_action_dim"], written["image_resolution"]) == (
        50,
        32,
        [224, 224],
    )


# ------------------------------------------------------------------------------------------- the command


def test_inspect(run, openpi, params):
    status, out, _ = run(f"weights inspect {openpi} --hash")
    assert status == 0
    lines = out.splitlines()
    count = sum(leaf.size for leaf in flat(params).values())
    assert lines[0] == f"{openpi}: openpi, {count:,} values, {4 * count / 1e6:,.1f} MB"
    assert "sizes: 3 layers, 8 heads of 4, widths 32 and 22, images 21, actions 7, vocabulary 37" in lines
    assert "fits: no recipe" in lines
    assert f"sha256: {weights.digest(params)}" in lines


@pytest.mark.parametrize("shape", [(), (0, 7)])
def test_a_weight_without_a_size_is_a_finding_and_no_traceback(run, lerobot, tmp_path, shape):
    from safetensors.numpy import load_file, save_file

    arrays = load_file(lerobot / "model.safetensors")
    name = next(name for name in arrays if "gemma_expert" in name and name.endswith("up_proj.weight"))
    (tmp_path / "bad").mkdir()
    save_file(arrays | {name: np.zeros(shape, np.float32)}, tmp_path / "bad" / "model.safetensors")
    (tmp_path / "bad" / "config.json").write_text((lerobot / "config.json").read_text())
    status, out, err = run(f"weights inspect {tmp_path / 'bad'}")
    assert status in (1, 2)
    assert "Traceback" not in out + err
    assert "up_proj" in out + err or "sizes" in out + err


def test_inspect_as_json_by_a_recipe_that_does_not_fit(run, openpi):
    status, out, _ = run(f"weights inspect {openpi} --config panda_demo --json")
    answer = json.loads(out)
    assert status == 1
    by_code = {(problem["code"], *problem["subject"]): problem["found"] for problem in answer["problems"]}
    assert by_code["size", "vocab"] == "vocab is 37 in the checkpoint, 1288 in the model"
    head = by_code["shape", "PaliGemma/img/head/kernel"]
    assert head.startswith("shape: PaliGemma/img/head/kernel is (15, 32)")
    assert answer["config"]["depth"] == 3
    assert answer["format"] == "openpi"


def test_the_policy_that_sees_no_image_is_inspected_and_converted(run, tmp_path):
    status, out, _ = run("weights inspect pi05-arms")
    assert status == 0
    assert "pi05_arms" in out.partition("fits: ")[2]
    assert run(f"weights convert pi05-arms {tmp_path / 'ours'} --to morph_vla")[0] == 0


@pytest.mark.slow
def test_a_policy_that_was_rounded_to_be_shared_stays_the_same_policy(tmp_path):
    convert("pi05-nano", tmp_path / "ours", "morph_vla")
    (before, _), (after, _) = (
        weights.load(place, dtype="stored") for place in ("pi05-nano", tmp_path / "ours")
    )
    assert weights.digest(before) == weights.digest(after)
    assert {leaf.dtype.name for leaf in flat(after).values()} == {"float32"}


def test_a_leaf_whose_layers_are_of_two_types_keeps_every_value(tmp_path, entries, host, write):
    name = next(name for name in entries if name.endswith("layers.0.mlp.up_proj.weight"))
    rounded = entries | {name: entries[name].astype(ml_dtypes.bfloat16)}
    write(tmp_path / "model.safetensors", rounded)
    (tmp_path / "config.json").write_text('{"type": "pi05"}')
    loaded, _ = weights.load(tmp_path, host, dtype="stored")
    whole = flat(weights.load(tmp_path, host)[0])
    assert all(np.array_equal(leaf, whole[name]) for name, leaf in flat(loaded).items())


def test_a_full_disk_is_said(tmp_path):
    draft = tensors.Draft((3, 1000), np.dtype(np.float32), lambda: [np.ones((3, 1000), np.float32)])
    with pytest.raises(OSError, match="No space left on device") as caught:
        tensors.write(Path("/dev/full"), {"a": draft}, {})
    assert caught.value.errno == errno.ENOSPC


def test_inspect_names_the_recipe_that_fits(run, tmp_path, drawn):
    from morph_vla.recipes import recipe as config

    model = config.load("panda_demo").model
    folder = weights.save_openpi(tmp_path / "demo", drawn(model))
    status, out, _ = run(f"weights inspect {folder} --config panda_demo")
    assert status == 0
    assert "fits: panda_demo" in out
    assert "does not fit" not in out


@pytest.mark.slow
def test_convert_there_and_back_prints_equal_hashes(run, openpi, folder):
    hashes = set()
    for source, target, kind in ((openpi, "a", "lerobot"), ("a", "b", "morph_vla"), ("b", "c", "openpi")):
        status, out, err = run(f"weights convert {source} {target} --to {kind}")
        assert (status, err) == (0, "")
        assert out.splitlines()[-1].startswith(f"{target}: {kind}, sha256 ")
        assert "parameters alone, without statistics (norm_stats.json" in out
        hashes.add(out.split()[-1])
    assert len(hashes) == 1
    assert json.loads((folder / "a" / "config.json").read_text())["chunk_size"] == 50
    status, _, err = run("weights convert b c --to openpi")
    assert (status, err) == (2, "error: c exists: nothing is overwritten; remove it or choose another name\n")


def test_inspect_of_what_is_no_pi05(run, tmp_path, write):
    write(tmp_path / "model.safetensors", {"a": np.zeros(3, np.float32)})
    status, out, _ = run(f"weights inspect {tmp_path}")
    assert status == 1
    assert "does not fit: " in out
    assert "the sizes of a pi0.5 cannot be read off it" in out


@pytest.mark.parametrize("verb", ["inspect", "convert"])
def test_the_recipe_of_another_family_is_refused(run, tmp_path, verb):
    rest = "target --to openpi" if verb == "convert" else ""
    assert run(f"weights {verb} {tmp_path} {rest} --config body_state") == (
        2,
        "",
        "error: --config body_state: its model.family is 'body', and only pi0.5 has layouts that other "
        "programs read and write; name a recipe of pi0.5, or leave it out\n",
    )
