"""The one error a user can cause."""


class RigError(Exception):
    """Bad input, a missing file, a host that cannot do it.

    The message says what happened, to which file or setting, and what to do about it.
    Scripts print it as one line and exit with 1; it never becomes a traceback.
    """


class StartError(RigError):
    """A llama-server that was started and did not come up, or not as its rig says."""
