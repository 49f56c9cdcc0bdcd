"""Every module can be imported on each Python that pyproject.toml allows: run in both environments."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

IMPORT = """
import importlib, json, pkgutil, warnings
import morph_vla

warnings.simplefilter("ignore")
broken, imported = {}, 0
for module in pkgutil.walk_packages(morph_vla.__path__, "morph_vla."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
        imported += 1
    except ModuleNotFoundError as error:
        if str(error.name).startswith("morph_vla"):
            broken[module.name] = str(error)
    except morph_vla.MorphVlaError:
        pass  # a library that it stands on is not here, in a sentence
    except Exception as error:
        broken[module.name] = f"{type(error).__name__}: {error}"
print(json.dumps([imported, broken]))
"""


def test_every_module_is_imported_or_lacks_a_library():
    """A default that Python 3.11 calls mutable, for one, is none for 3.12."""
    ran = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    imported, broken = json.loads(ran.stdout.splitlines()[-1])
    assert broken == {}
    assert imported > 200
