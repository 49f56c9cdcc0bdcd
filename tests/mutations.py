"""Mutations: a place of the code as a mistake would have it, and the law that must then be broken.

A law that no mistake breaks says nothing. A mutation names a function or a class, a part of its text and what
could stand there by mistake; the changed text takes its place wherever the package holds it.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import pytest


class Law(NamedTuple):
    """A test of another file, and what it is given."""

    test: Callable[..., Any]
    given: tuple[Any, ...] = ()

    def __call__(self) -> None:
        """Hold, or raise AssertionError."""
        self.test(*self.given)


class Mutation(NamedTuple):
    """One mistake."""

    where: Any
    """A function or a class, not its method: Flax reads a module's methods once, when the class is made"""
    right: str
    """Occurs once in its text"""
    wrong: str
    law: Law


def law(test: Callable[..., Any], *given: Any) -> Law:
    """A test with its parameters; of one that Hypothesis gives examples, with one of them."""
    return Law(test.hypothesis.inner_test if hasattr(test, "hypothesis") else test, given)


def written_wrong(mutation: Mutation) -> Any:
    """The function or class with the mistake in it."""
    module = sys.modules[mutation.where.__module__]
    text = textwrap.dedent(inspect.getsource(mutation.where))
    assert text.count(mutation.right) == 1, f"{mutation.where.__name__} has no longer one '{mutation.right}'"
    made: dict[str, Any] = {}
    code = compile(
        text.replace(mutation.right, mutation.wrong), f"{module.__file__}, with a mutation", "exec"
    )
    exec(code, vars(module), made)
    return made[mutation.where.__name__]


@contextmanager
def made(mutation: Mutation) -> Iterator[None]:
    """The mistake is in the code. JAX forgets what it compiled without it, and afterwards with it."""
    wrong, name = written_wrong(mutation), mutation.where.__name__
    ours = [module for key, module in sys.modules.items() if key.startswith("morph_vla.")]
    with pytest.MonkeyPatch.context() as patch:
        for module in [*ours, sys.modules[mutation.law.test.__module__]]:
            if vars(module).get(name) is mutation.where:
                patch.setattr(module, name, wrong)
        jax.clear_caches()
        yield
    jax.clear_caches()


def is_noticed(mutation: Mutation) -> None:
    """Its law holds no more: anything else than a failure of the test, such as an array's shape, is none."""
    with made(mutation), pytest.raises((AssertionError, pytest.fail.Exception)):
        mutation.law()


def with_parameters(mutations: dict[str, Mutation]) -> list[Any]:
    """Each law that is given something, once; the others are run in their own file as they are here."""
    laws: list[Law] = []
    for mutation in mutations.values():
        if mutation.law.given and mutation.law not in laws:
            laws.append(mutation.law)
    return [pytest.param(law, id=law.test.__name__) for law in laws]
