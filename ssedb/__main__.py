"""`python -m ssedb`."""

import sys

from ssedb.cli import main

sys.exit(main())
