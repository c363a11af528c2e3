"""``python -m desketch`` is the ``desketch`` command."""

from desketch.cli.app import main

if __name__ == "__main__":
    main()
