"""A checkpoint, a run or a dataset, uploaded into a repository of the Hub."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.files import hub
from morph_vla.files.cache import cache_folder
from morph_vla.sharing import contents
from morph_vla.wording import count


@dataclass(frozen=True)
class Pushed:
    """What was uploaded, and where it is now."""

    repository: str
    kind: hub.Kind
    url: str
    files: int
    nbytes: int
    evaluations: int
    """Records of this very policy"""
    revision: str = ""
    """The branch that it is on; "" is the main one"""

    def __str__(self) -> str:
        """What was uploaded, and how others name it."""
        what = f"{count(self.files, 'file')}, {self.nbytes / 1e6:,.1f} MB"
        if self.kind == "dataset":
            return f"{what}: {self.url}\nothers name it data.dataset={self.repository}"
        evaluations, at = count(self.evaluations, "evaluation"), f"@{self.revision}" if self.revision else ""
        return f"{what}, {evaluations}: {self.url}\nothers name it hf://{self.repository}{at}"


def push(
    folder: Path | str,
    repository: str,
    *,
    private: bool = False,
    revision: str = "",
    records: Sequence[Path] = (),
    base: str = "",
) -> Pushed:
    """Upload what `folder` holds into `repository` (`USER/NAME`) of the Hub, on its branch `revision`.

    `records` are evaluations beside those below a run's folder; of all of them, those of this very policy go
    with it. Parameters that equal those of `base` (`pi05-base`, `hf://...`, `gs://...`) stay at home: whoever
    fetches the policy fetches them from there, and holds them against their SHA-256. The folder is only read.
    Raises MorphVlaError as `contents.of` and `hub.upload`.
    """
    hub.check_upload(repository)
    place = cache_folder() / "push"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as staging:
        options = contents.Options(records, base, revision=revision)
        shared = contents.of(Path(folder), repository, Path(staging), options)
        url = hub.upload(
            repository,
            shared.files,
            kind=shared.kind,
            private=private,
            revision=revision,
            owned=shared.owned,
            tag="" if revision else shared.tag,
        )
        sizes = len(shared.files), shared.nbytes, shared.evaluations
        return Pushed(repository, shared.kind, url, *sizes, revision)
