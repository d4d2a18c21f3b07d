"""The command line as a module: python -m curioplan."""

import sys

from curioplan.cli import main

sys.exit(main())
