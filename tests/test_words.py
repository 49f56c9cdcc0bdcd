"""No code decides by the words of a sentence: a finding has a code, an error its kind.

Here the rule is read from code. That the same is done when every sentence is another (the fixture `reword`)
is tested where the sentences are: `test_findings` (robots, recordings, recipes), `weights/test_problems`,
`checks/test_policy_fits`, `evaluation/test_environments`, `recipes/test_ablations`, `serving/test_malformed`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import morph_vla

PACKAGE = Path(morph_vla.__file__).parent
PARTS = {"found", "expected", "consequence"}  # of a finding; no other class has attributes of these names
ASKING = {"startswith", "endswith", "find", "index", "count", "match", "search", "fullmatch"}


def is_sentence(node: ast.AST, errors: set[str]) -> bool:
    """Whether an expression is a finding's part, or the text of an error that was caught."""
    if isinstance(node, ast.Attribute):
        caught = isinstance(node.value, ast.Name) and node.value.id in errors
        return node.attr in PARTS or (node.attr == "args" and caught)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id in errors
    return False


def asked(tree: ast.AST) -> Iterator[int]:
    """Lines on which a sentence is compared, searched or matched, as it is or by a name that it was given."""
    nodes = list(ast.walk(tree))
    errors = {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    given = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and is_sentence(node.value, errors)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def has_sentence(node: ast.AST) -> bool:
        return any(
            is_sentence(part, errors) or (isinstance(part, ast.Name) and part.id in given)
            for part in ast.walk(node)
        )

    for node in nodes:
        asks = isinstance(node, ast.Compare | ast.Match)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asks = node.func.attr in ASKING
        if asks and has_sentence(node.subject if isinstance(node, ast.Match) else node):
            yield getattr(node, "lineno", 0)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_code_asks_for_the_words_of_a_sentence():
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 100
    offences = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in paths
        for code in functions(path)
        for line in asked(code)
    }
    assert not offences


@pytest.mark.parametrize(
    "code",
    [
        "if ' values for ' in remark.found: pass",
        "wrong = [f for f in findings if f.consequence == 'it is not read']",
        "first = finding.expected\nif first.startswith('expected a'): pass",
        "match finding.found:\n    case 'none': pass",
        "again = re.search('no such file', finding.found)",
        "try: f()\nexcept OSError as error:\n    if 'full' in str(error): pass",
        "try: f()\nexcept OSError as error:\n    if error.args[0] == 'full': pass",
        "try: f()\nexcept OSError as error:\n    why = str(error)\n    if why.endswith('full'): pass",
    ],
)
def test_the_rule_sees_what_it_is_about(code):
    assert list(asked(ast.parse(code)))
