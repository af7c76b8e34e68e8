"""`python -m mplint` is `mplint`."""

import sys

from mplint.cli import main

sys.exit(main())
