"""The house rules a machine can check: who imports whom, which engine is behind which door, how quickly."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from house_tables import DOORS, FLOOR, HEAVY, ONLY, PUBLIC, ROOMS, WITHOUT_JAX

import morph_vla
from morph_vla.cli import COMMANDS

PACKAGE = Path(morph_vla.__file__).parent
PYTHON_PAGE = PACKAGE.parent / "docs" / "python.md"
DIALECT = {"said", "told"}
PICTURE = 54  # columns of the picture in CONTRIBUTING.md; then its lines say what rooms are for
MAX_LINES, MAX_FUNCTION, MAX_COMMAND = 450, 70, 93


def files() -> list[Path]:
    result = sorted(path for path in PACKAGE.rglob("*.py") if "shipped" not in path.parts)
    assert len(result) > 100  # a rule that is held against nothing holds
    return result


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(source(path))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def module_of(path: Path) -> str:
    parts = [*path.relative_to(PACKAGE.parent).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, anywhere: bool = True) -> Iterator[str]:
    """The modules a file imports."""
    try:
        yield from imported(parsed(path), anywhere=anywhere)
    except AssertionError as error:
        raise AssertionError(f"{name_of(path)}:{error}") from error


def imported(tree: ast.Module, *, anywhere: bool = True) -> Iterator[str]:
    """The modules that are imported, `require("...")` and `import_module("...")` of a fixed name included."""
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{node.lineno}: imports are absolute"
            base = node.module or ""
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("require", "import_module") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def no_offences(offences: Iterable[str]) -> None:
    """Holds where no file breaks the rule; else names every one that does."""
    assert not (result := list(offences)), "\n".join(["", *result])


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "morph_vla" and len(parts) > 1 and parts[1] in ROOMS else None


def upward(path: Path) -> Iterator[str]:
    """What a file imports from a room that it does not stand on."""
    own = room_of(module_of(path))
    if module_of(path) == "morph_vla":  # the door: a name's room is imported when the name is touched
        return
    for module in imports(path):
        room = room_of(module)
        if room is None or room == own:
            continue
        if own is None and room == "files":  # process
            continue
        if own is None:  # errors, doctor: below every room
            yield f"{name_of(path)} imports {module}, but is below every room"
        elif FLOOR[room] >= FLOOR[own]:
            yield f"{name_of(path)} imports {module}, which is not below it"
        elif room not in ONLY.get(own, ROOMS):
            yield f"{name_of(path)} imports {module}; {own} stands on {ONLY[own]}"


def test_nothing_imports_upward():
    no_offences(offence for path in files() for offence in upward(path))


def of_another_room(module: str, own: str | None) -> str | None:
    """The module of another room that an import means, as `weights.load`; None within a room."""
    room = room_of(module)
    if room is None or room == own:
        return None
    names = module.split(".")[1:]
    while len(names) > 1 and not PACKAGE.joinpath(*names).with_suffix(".py").is_file():
        names.pop()
    return ".".join(names)


def used_of_rooms() -> dict[str, set[str]]:
    """module of a room -> who uses it: files of other rooms, and the page about Python."""
    used: dict[str, set[str]] = {}
    code = ast.parse("\n".join(re.findall(r"```python\n(.*?)```", PYTHON_PAGE.read_text(), re.DOTALL)))
    named = re.findall(r"`(morph_vla\.[\w.]+)", PYTHON_PAGE.read_text())
    users = {name_of(path): (imports(path), room_of(module_of(path))) for path in files()}
    for user, (modules, own) in {**users, "docs/python.md": ([*named, *imported(code)], None)}.items():
        for module in modules:
            if other := of_another_room(module, own):
                used.setdefault(other, set()).add(user)
    return used


def test_rooms_use_only_what_is_public_of_each_other():
    public = {f"{room}.{name}" for room, names in PUBLIC.items() for name in names.split()}
    used = used_of_rooms()
    no_offences(
        f"{', '.join(sorted(users))}: {module} is not in PUBLIC"
        for module, users in sorted(used.items())
        if "." in module and module not in public
    )
    no_offences(f"{module} is in PUBLIC and nobody uses it" for module in sorted(public - used.keys()))


def test_the_picture_in_contributing_has_every_room_above_those_it_imports():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    lines = next(block for block in blocks if block.startswith("cli ")).splitlines()
    assert len(lines) <= 12
    drawn = {room: number for number, line in enumerate(lines) for room in line[:PICTURE].split()}
    assert drawn.keys() >= {*ROOMS}
    no_offences(
        f"{own} imports {room}, and stands no higher in the picture"
        for path in files()
        if (own := room_of(module_of(path)))
        for room in {room_of(module) for module in imports(path)} - {own, None}
        if drawn[own] >= drawn[room]
    )


def test_engines_stay_behind_their_door():
    no_offences(
        f"{name_of(path)} imports {module}; only {door} may"
        for path in files()
        for module in imports(path)
        if (door := DOORS.get(module.split(".")[0])) is not None and name_of(path) not in door
    )


def test_robots_and_simulation_know_no_jax():
    no_offences(
        f"{name_of(path)} imports {module}"
        for path in files()
        if room_of(module_of(path)) in (*WITHOUT_JAX, None)
        for module in imports(path)
        if module.split(".")[0] in HEAVY
    )


def test_there_are_no_circles():
    known = {module_of(path): path for path in files()}
    graph = {
        module: {
            other
            for name in imports(path, anywhere=False)
            for other in (name, name.rpartition(".")[0])
            if other in known and other != module and not module.startswith(f"{other}.")
        }
        for module, path in known.items()
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"a circle: {' -> '.join([*trail[trail.index(module) :], module])}"
        if module not in done:
            for other in sorted(graph[module]):
                visit(other, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def too_long(path: Path) -> Iterator[str]:
    """A file, or functions in it, longer than can be read."""
    lines = source(path).count("\n")
    if lines >= MAX_LINES:
        yield f"{name_of(path)} has {lines} lines"
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            length = node.end_lineno - node.lineno + 1
            if length >= MAX_FUNCTION:
                yield f"{name_of(path)}:{node.lineno}: {node.name} has {length} lines"


def test_a_command_parses_calls_and_renders():
    modules = [module for _, module in COMMANDS.values()]
    lengths = {path: source(path).count("\n") for path in files() if module_of(path) in modules}
    assert len(lengths) == len(modules)
    no_offences(f"{name_of(path)} has {n} lines" for path, n in lengths.items() if n >= MAX_COMMAND)


def test_files_and_functions_can_be_read():
    no_offences(offence for path in files() for offence in too_long(path))


HOOKS = {"setup"}  # called by flax alone


def functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Functions of a module or a class, and of the public classes in it; none that is nested."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            yield item
        elif isinstance(item, ast.ClassDef) and not item.name.startswith("_"):
            yield from functions(item)


def test_a_public_function_says_what_it_is_for():
    """A method that its room's protocol documents is documented."""
    documented: dict[str, set[str]] = {}
    silent = []
    for path in files():
        room = path.relative_to(PACKAGE).parts[0]
        for function in functions(parsed(path)):
            if ast.get_docstring(function):
                documented.setdefault(room, set(HOOKS)).add(function.name)
            elif not function.name.startswith("_"):
                silent.append((path, room, function))
    no_offences(
        f"{name_of(path)}:{function.lineno}: {function.name} has no docstring"
        for path, room, function in silent
        if function.name not in documented.get(room, HOOKS)
    )


def test_locals_carry_a_noun():
    """`dataset`, not `said`: what a name stands for, not how it came to be."""
    no_offences(
        f"{name_of(path)}:{node.lineno}: {node.id}"
        for path in files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in DIALECT
    )


LARGEST_SHARE = 0.12  # of the package's lines, in one room
SIMULATION = ("suites", "engines", "demonstrations", "evaluation", "results", "report")
MOST_ANY = 40  # mentions of `Any` in those: libraries without types


def test_no_room_holds_more_than_its_share_of_the_lines():
    lines = Counter()
    for path in files():
        lines[path.relative_to(PACKAGE).parts[0]] += source(path).count("\n")
    no_offences(
        f"{room} has {count} of {lines.total()} lines"
        for room, count in lines.items()
        if count > LARGEST_SHARE * lines.total()
    )


def test_the_simulation_side_is_typed():
    mentions = [
        f"{name_of(path)}:{node.lineno}"
        for path in files()
        if path.relative_to(PACKAGE).parts[0] in SIMULATION
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert len(mentions) < MOST_ANY, mentions


def test_annotations_are_values_so_that_they_are_checked():
    no_offences(name_of(path) for path in files() if "__future__.annotations" in set(imports(path)))


# ------------------------------------------------------------------------------------------------ lazy import

CHILD = """
import json, sys, time
begun = time.perf_counter()
{code}
took = time.perf_counter() - begun
print(json.dumps([took, sorted({{name.split(".")[0] for name in sys.modules}})]))
"""


def import_in_a_new_process(code: str) -> tuple[float, set[str]]:
    command = [sys.executable, "-c", CHILD.format(code=code)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    took, modules = json.loads(ended.stdout.splitlines()[-1])
    return took, set(modules)


def quickest(code: str) -> tuple[float, set[str]]:
    """The best of three: what the code costs, not what else this machine is doing."""
    return min((import_in_a_new_process(code) for _ in range(3)), key=lambda answer: answer[0])


def test_importing_the_package_costs_nothing():
    took, modules = quickest("import morph_vla")
    assert took < 1
    assert not modules & {*HEAVY, *DOORS, "numpy", "pydantic", "yaml", "matplotlib", "jaxtyping"}


def test_help_and_its_subcommands_start_at_once():
    code = "import runpy, sys; sys.argv = ['morph-vla', '--help']\ntry: runpy.run_module('morph_vla.cli')\n"
    took, modules = quickest(f"{code}except SystemExit: pass")
    assert took < 1
    assert not modules & {*HEAVY, *DOORS, "numpy", "pydantic", "yaml", "matplotlib", "jaxtyping"}


@pytest.mark.parametrize("room", WITHOUT_JAX)
def test_a_room_without_jax_pulls_none_in(room):
    if not (PACKAGE / room / "__init__.py").is_file():
        pytest.skip(f"morph_vla/{room} is not there yet")
    _, modules = import_in_a_new_process(f"import morph_vla; morph_vla.{room}")
    assert not modules & {*HEAVY, *DOORS, "matplotlib"}


def test_the_rooms_are_attributes_of_the_package():
    assert morph_vla.robots.__name__ == "morph_vla.robots"
    assert {"robots", "evaluation", "__version__"} <= set(dir(morph_vla))
    with pytest.raises(AttributeError, match=r"^module 'morph_vla' has no attribute 'robot'$"):
        _ = morph_vla.robot
