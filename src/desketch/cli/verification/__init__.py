"""The experiments behind ``desketch verify``: Algorithm 1 on problems whose constants are known, against the bounds."""
