"""The main program of `txnwatch run` for spark-submit: its arguments are those of `txnwatch run`."""

import sys

from txnwatch.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
