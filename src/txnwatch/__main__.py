"""Entry point of `python -m txnwatch`, the same program as `txnwatch`."""

import sys

from txnwatch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
