"""The ``desketch`` command, also as ``python -m desketch``; Ctrl-C ends it in one line, even while it imports."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from desketch.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
