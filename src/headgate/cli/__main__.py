"""`python -m headgate.cli`: the same as `headgate`."""

import sys

from headgate.cli import main

sys.exit(main())
