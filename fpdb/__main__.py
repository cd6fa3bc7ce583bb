"""Run the command line with python -m fpdb."""

from fpdb.cli import main

if __name__ == "__main__":
    main()
