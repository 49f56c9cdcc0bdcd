"""The errors a user can cause, and the helpers that word them."""

import difflib
import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType

from morph_vla.findings import Finding


class MorphVlaError(Exception):
    """Something a user can cause and repair; its text is one sentence that says how.

    The command line prints it as `error: ...` and exits with status 2, without a traceback.
    """


class ConfigError(MorphVlaError, ValueError):
    """A key, a type or a combination that a YAML file or an override cannot have.

    It is a ValueError too, so a dataclass may raise it from `__post_init__` and `dropin.read` reports it
    with the file and the key, beside every other problem.
    """

    findings: tuple[Finding, ...] = ()
    """What a judge found, where one did"""

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> "ConfigError":
        """The error of some findings, a line each: where and what."""
        error = cls("\n".join(f"{finding.where}: {finding.found}" for finding in findings))
        error.findings = tuple(findings)
        return error


class PolicyGoneError(MorphVlaError):
    """A policy that answers from elsewhere is there no more: no fault of the question, and of no episode."""


class MissingExtraError(MorphVlaError, ImportError):
    """An optional dependency is not installed; the text names the extra that brings it."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The tail of an error message: `"; did you mean 'panda'?"`, or `""` when nothing is near.

    Letters are compared without regard to case; the choice is quoted as it is spelled.
    """
    near = closest(word, choices)
    return f"; did you mean '{near}'?" if near else ""


def closest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """The choice that is spelled most like `word`, as it is spelled; "" if none is (`cutoff`: 0..1)."""
    spelled = {choice.casefold(): choice for choice in sorted(choices, reverse=True)}
    near = difflib.get_close_matches(word.casefold(), spelled, n=1, cutoff=cutoff)
    return spelled[near[0]] if near else ""


def reason(error: BaseException) -> str:
    """What an error of another library says in its first line, or its kind where it says nothing."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__).rstrip(".")


def words_of(error: BaseException) -> str:
    """An error's sentence, with its kind where it is not one of ours."""
    return str(error) if isinstance(error, MorphVlaError) else f"{type(error).__name__}: {reason(error)}"


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra of this package installs it.

    Raises MissingExtraError when `module` itself (or its parent package) is not installed, and says so where
    the package is there and lacks that part, as another release of it may. A failure *inside* an installed
    module is passed on as it is: naming an extra there would hide the cause.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        from morph_vla import installing  # a client that has all it needs never asks

        package, remedy = module.partition(".")[0], installing.remedy(extra)
        if error.name == package:
            raise MissingExtraError(f"'{module}' is not installed; install the extra: {remedy}") from error
        raise MissingExtraError(
            f"the installed '{package}' has no '{error.name}', which another release or "
            f"part of it brings: {remedy}"
        ) from error
