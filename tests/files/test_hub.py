"""Repositories of the Hub: what is fetched and uploaded, and one sentence for whatever goes wrong."""

import random
import re
from pathlib import Path

import pytest
from hub_stand_in import Repository, commit_of

from morph_vla.errors import MorphVlaError
from morph_vla.files import hub, remote

# The Hub's client uploads by a word of httpx that this is leaving.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
WEIGHTS = bytes(range(256)) * 8
FILES = {
    "averaged.safetensors": WEIGHTS,
    "about/policy.json": b"{}",
    "about/robots/arm.urdf": b"<robot/>",
    "notes.pkl": b"a pickle",
    "README.md": b"# An arm",
}


@pytest.fixture
def shared(hub_server) -> Repository:
    """A repository of a stranger's."""
    repository = hub_server.repositories["models/me/arm"] = Repository(branches={"main": [dict(FILES)]})
    return repository


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_we_read_is_fetched_and_nothing_else(hub_server, shared):
    folder = hub.fetch("hf://me/arm")
    wanted = {name: FILES[name] for name in FILES if name not in ("notes.pkl", "README.md")}
    assert contents(folder) == wanted
    assert not any("notes.pkl" in path for _, path in hub_server.asked)


def test_a_copy_that_was_fetched_serves_without_a_network(hub_server, shared, monkeypatch):
    from huggingface_hub import constants

    before = hub.fetch("hf://me/arm")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.fetch("hf://me/arm") == before
    with pytest.raises(MorphVlaError, match="hf://me/leg could not be fetched: the Hub cannot be"):
        hub.fetch("hf://me/leg")


def test_a_copy_is_known_without_asking_anybody(hub_server, shared):
    assert hub.cached("hf://me/arm") is None
    before = hub.fetch("hf://me/arm")
    asked = len(hub_server.asked)
    assert hub.cached("hf://me/arm") == before
    assert remote.kept("hf://me/arm") == before
    assert hub.cached("hf://me/arm/nowhere") is None
    hub._unfinished(hub.Address.parse("hf://me/arm"), before.name).touch()
    assert hub.cached("hf://me/arm") is None
    assert len(hub_server.asked) == asked


def test_a_branch_that_moves_meanwhile_brings_only_what_was_checked(hub_server, shared, monkeypatch):
    import huggingface_hub

    listed = huggingface_hub.HfApi.repo_info

    def and_then_it_moves(*arguments, **options):
        answer = listed(*arguments, **options)
        shared.branches["main"].append({**FILES, "about/policy.json": b"not what was listed"})
        return answer

    with monkeypatch.context() as between:
        between.setattr(huggingface_hub.HfApi, "repo_info", and_then_it_moves)
        assert contents(hub.fetch("hf://me/arm"))["about/policy.json"] == b"{}"
    assert contents(hub.fetch("hf://me/arm"))["about/policy.json"] == b"not what was listed"


def test_a_cache_that_cannot_be_written_is_read_all_the_same(hub_server, shared, monkeypatch, caplog):
    folder = hub.fetch("hf://me/arm")
    refused = []

    def write(path, _):
        refused.append(path.name)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hub, "write_text", write)
    assert hub.fetch("hf://me/arm") == folder
    assert refused == []  # it says so already
    (folder.parents[1] / "refs" / "main").unlink()
    assert hub.fetch("hf://me/arm") == folder
    assert refused == ["main"]
    assert "main cannot be written ([Errno 13] Permission denied): offline, main is not found" in caplog.text


def test_an_interrupted_download_is_no_copy_and_goes_on(hub_server, shared, monkeypatch):
    from huggingface_hub import constants

    hub_server.cuts = ("GET", "averaged.safetensors")
    with pytest.raises(MorphVlaError, match="the same command goes on where it stopped") as stopped:
        hub.fetch("hf://me/arm")
    assert "\n" not in str(stopped.value)
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(MorphVlaError, match="this machine has no whole copy"):
            hub.fetch("hf://me/arm")
    hub_server.cuts = ("", "")
    assert contents(hub.fetch("hf://me/arm"))["averaged.safetensors"] == WEIGHTS


def test_a_commits_files_are_whole_or_no_copy(hub_server, shared, monkeypatch):
    """A process that is killed while it fetches leaves some files, which the Hub's client takes for all."""
    import huggingface_hub
    from huggingface_hub import constants

    source = f"hf://me/arm@{commit_of(shared.branches['main'][-1])}"
    folder, download = hub.fetch(source), huggingface_hub.snapshot_download

    def cut_off(*arguments, **options):
        download(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(huggingface_hub, "snapshot_download", cut_off)
        with pytest.raises(KeyboardInterrupt):
            hub.fetch(source)
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(
            MorphVlaError, match="has no whole copy: it was cut off; with a network, the same"
        ):
            hub.fetch(source)
    assert hub.fetch(source) == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.fetch(source) == folder


@pytest.mark.parametrize(
    ("name", "size", "sentence"),
    [
        ("about/../../escaped.json", 3, "names a file outside its folder ('about/../../escaped.json')"),
        ("/etc/robots.json", 3, "names a file outside its folder ('/etc/robots.json')"),
        ("about\\..\\x.json", 3, "names a file outside its folder"),
        ("about/policy.json", hub.MAX_TEXT + 1, "about/policy.json has 67,108,865 bytes; at most 67,108,864"),
        (
            "averaged.safetensors",
            hub.MAX_WEIGHTS + 1,
            "the repository has 1 files of 137,438,953,473 bytes",
        ),
    ],
)
def test_a_strangers_list_is_checked_before_anything_is_fetched(name, size, sentence):
    with pytest.raises(MorphVlaError, match=re.escape(sentence)):
        hub.needed({name: size})


def test_a_file_outside_is_never_asked_for(hub_server, shared, tmp_path):
    shared.branches["main"][-1]["../../escaped.json"] = b"{}"
    with pytest.raises(MorphVlaError, match="could not be fetched: the repository names a file outside"):
        hub.fetch("hf://me/arm")
    assert not any("resolve" in path for _, path in hub_server.asked)
    assert not list(tmp_path.rglob("escaped*"))


def test_each_refusal_is_one_sentence(hub_server, shared, monkeypatch):
    refusals = {
        "hf://me/leg": "the Hub has no such repository, or hides it from whoever asks here (`hf auth",
        "hf://me/arm@old": "hf://me/arm@old could not be fetched: it has no revision 'old'",
        "hf://me/arm/sub": "the repository has no folder 'sub' with weights",
    }
    for source, sentence in refusals.items():
        with pytest.raises(MorphVlaError, match=re.escape(sentence)) as refused:
            hub.fetch(source)
        assert "\n" not in str(refused.value)
    monkeypatch.delenv("HF_TOKEN")
    shared.gated = True
    gated = "it is gated: ask for access at https://huggingface.co/me/arm, then `hf auth login`"
    with pytest.raises(MorphVlaError, match=re.escape(gated)):
        hub.fetch("hf://me/arm")


def test_an_upload_can_be_fetched_again(hub_server):
    url = hub.upload("me/arm", {"about/policy.json": b"{}", "averaged.safetensors": WEIGHTS})
    assert url.startswith(f"{hub_server.url}/me/arm/commit/")
    repository = hub_server.repositories["models/me/arm"]
    assert not repository.private
    folder = hub.fetch("hf://me/arm")
    assert contents(folder) == {"about/policy.json": b"{}", "averaged.safetensors": WEIGHTS}
    assert hub.pinned("hf://me/arm", folder) == f"hf://me/arm@{url[-40:]}"


def test_an_upload_is_one_commit_that_removes_what_we_own_and_no_more(hub_server, tmp_path):
    old = {"LICENSE": b"mine", "data/2.parquet": b"2", "data/1.parquet": b"1"}
    repository = hub_server.repositories["datasets/me/arm"] = Repository(
        branches={"main": [old]}, tags={"v3.0": "a"}
    )
    (tmp_path / "1").write_bytes(WEIGHTS)
    url = hub.upload(
        "me/arm", {"data/1.parquet": tmp_path / "1"}, kind="dataset", owned=("data/",), tag="v3.0"
    )
    assert repository.branches["main"][1:] == [{"LICENSE": b"mine", "data/1.parquet": WEIGHTS}]
    assert repository.tags == {"v3.0": url[-40:]}


def test_a_branch_is_made_and_the_main_one_stays(hub_server):
    repository = hub_server.repositories["models/me/arm"] = Repository()
    hub.upload("me/arm", {"a.json": b"{}"}, revision="trial")
    assert repository.files() == {}
    assert repository.files("trial") == {"a.json": b"{}"}


def test_an_interrupted_upload_is_not_seen_and_goes_on(hub_server):
    files = {"averaged.safetensors": WEIGHTS, "more.safetensors": WEIGHTS[::-1]}
    hub.upload("me/other", {"more.safetensors": WEIGHTS[::-1]})
    hub_server.cuts = ("PUT", "")
    with pytest.raises(
        MorphVlaError, match=r"me/arm could not be uploaded: .*; with a network, the same"
    ) as e:
        hub.upload("me/arm", files)
    assert "\n" not in str(e.value)
    assert hub_server.repositories["models/me/arm"].files() == {}
    hub_server.cuts = ("", "")
    hub_server.asked.clear()
    hub.upload("me/arm", files)
    assert sum(method == "PUT" for method, _ in hub_server.asked) == 1  # the other one is there
    assert hub_server.repositories["models/me/arm"].files() == files


def test_private_stays_private(hub_server):
    hub.upload("me/arm", {"a.json": b"{}"}, private=True)
    assert hub_server.repositories["models/me/arm"].private
    hub.upload("me/arm", {"a.json": b"[]"})
    assert hub_server.repositories["models/me/arm"].private
    hub_server.repositories["models/me/arm"].private = False
    with pytest.raises(MorphVlaError, match="me/arm could not be uploaded: it is public; make it private"):
        hub.upload("me/arm", {"a.json": b"secret"}, private=True)
    assert hub_server.repositories["models/me/arm"].files() == {"a.json": b"[]"}


def test_who_may_not_upload_is_told_so(hub_server, monkeypatch):
    with pytest.raises(MorphVlaError, match="'arm' is no name of a repository; expected USER/NAME"):
        hub.upload("arm", {})
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    with pytest.raises(MorphVlaError, match="the Hub refuses this machine's token: it may not do that"):
        hub.upload("me/arm", {"a.json": b"{}"})
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(MorphVlaError, match="the Hub asks who uploads, and this machine has no token"):
        hub.upload("me/arm", {"a.json": b"{}"})
    assert not hub_server.repositories


def test_without_a_network_an_upload_is_one_sentence(hub_server, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(MorphVlaError, match=r"me/arm could not be uploaded: .*refused; with a network,"):
        hub.upload("me/arm", {"a.json": b"{}"})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MorphVlaError, match="the Hub cannot be reached, because HF_HUB_OFFLINE is set"):
        hub.upload("me/arm", {"a.json": b"{}"})


# ------------------------------------------------------------------------------------------------ Xet


NOISE = random.Random(5).randbytes(200_003)


def test_with_xet_storage_an_upload_can_be_fetched_again(xet_server):
    """Large files go there and come from there, small ones over the Hub; both ways the same bytes."""
    files = {"about/policy.json": b"{}", "averaged.safetensors": NOISE}
    hub.upload("me/arm", files)
    assert ("PUT", "/") not in {(method, path[:1]) for method, path in xet_server.asked}
    assert contents(hub.fetch("hf://me/arm")) == files
    assert any("xet-read-token" in path for _, path in xet_server.asked)
    assert {path.split("/")[2] for _, path in xet_server.xet.asked if path.startswith("/v1")} >= {
        "xorbs", "shards", "reconstructions",
    }  # fmt: skip


def test_what_xet_stored_is_fetched_without_hf_xet_too(xet_server, monkeypatch):
    from huggingface_hub import constants

    hub.upload("me/arm", {"averaged.safetensors": NOISE})
    xet_server.xet.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    assert contents(hub.fetch("hf://me/arm")) == {"averaged.safetensors": NOISE}
    assert xet_server.xet.asked == []


def test_where_xet_storage_refuses_there_is_one_sentence(xet_server, monkeypatch):
    hub.upload("me/arm", {"averaged.safetensors": NOISE})
    xet_server.xet.is_down = True
    for work in (
        lambda: hub.fetch("hf://me/arm"),
        lambda: hub.upload("me/leg", {"averaged.safetensors": NOISE[::-1]}),
    ):
        with pytest.raises(MorphVlaError, match="HF_HUB_DISABLE_XET=1") as refused:
            work()
        assert "\n" not in str(refused.value)
