"""The one exception a user of the tool is meant to see."""


class ClusterError(Exception):
    """Something the user can put right; the message says what was found and what to do."""
