"""`python -m aischeduler` is `ai-scheduler`."""

import sys

from aischeduler.cli.app import main

sys.exit(main())
