"""``python -m pyrklog`` is the command line."""

from pyrklog.cli import main

if __name__ == "__main__":
    main()
