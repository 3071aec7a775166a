"""The one error a person can cause."""


class RigError(Exception):
    """Something a person can put right: what happened, to which file or setting, what to do."""
