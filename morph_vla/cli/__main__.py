"""`python -m morph_vla.cli`, the same as `morph-vla`."""

import sys

from morph_vla.cli import main

sys.exit(main())
