"""Every error desketch raises on purpose, as one tree.

::

    DesketchError
    ├── InputError        a value at the boundary is wrong: shape, dtype, range, name   (also a ValueError)
    │   ├── SketchError   a sketch cannot be drawn or applied as asked
    │   └── ConfigError   a configuration, task, partition or model cannot be built
    ├── WireError         a frame is malformed, or belongs to another run, round or key
    ├── PrivacyError      a privacy claim cannot be made: unknown event, failed precondition
    │   └── BudgetError   the next release would exceed the privacy budget
    ├── TheoryError       a theorem's precondition does not hold                         (also a ValueError)
    └── RunError          a run cannot start, continue or resume

`PrivacyWarning` is the one warning with a class of its own: a guarantee that is true and weak.

A message says what was got, what was expected, and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "ConfigError",
    "DesketchError",
    "InputError",
    "PrivacyError",
    "PrivacyWarning",
    "RunError",
    "SketchError",
    "TheoryError",
    "WireError",
]


class DesketchError(Exception):
    """Base of all errors raised on purpose."""


class InputError(DesketchError, ValueError):
    """A value given by the caller is wrong."""


class SketchError(InputError):
    """A sketch cannot be drawn or applied as asked."""


class ConfigError(InputError):
    """A configuration, task, partition or model cannot be built."""


class WireError(DesketchError):
    """A frame is malformed, or belongs to another run, round or key."""


class PrivacyError(DesketchError):
    """A privacy claim cannot be made."""


class BudgetError(PrivacyError):
    """The next release would exceed the privacy budget."""


class PrivacyWarning(UserWarning):
    """A privacy claim holds, but says little."""


class TheoryError(DesketchError, ValueError):
    """A theorem's precondition does not hold."""


class RunError(DesketchError):
    """A run cannot start, continue or resume."""
