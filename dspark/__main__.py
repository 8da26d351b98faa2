"""`python -m dspark`: the same as the command `dspark`."""

import sys

from dspark.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
