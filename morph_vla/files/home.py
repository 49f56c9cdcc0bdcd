"""`~` in a path that somebody typed."""

from pathlib import Path

from morph_vla.errors import MorphVlaError


def expanded(path: Path | str) -> Path:
    """The path with a leading `~` or `~user` replaced. Raises MorphVlaError where nobody knows that home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # no such user, or one without a home and HOME not set
        home = Path(path).parts[0]
        raise MorphVlaError(f"{path}: nobody knows the home folder '{home}'; write the path out") from error
