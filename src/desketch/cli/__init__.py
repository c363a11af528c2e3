"""The ``desketch`` command: one file per subcommand."""
