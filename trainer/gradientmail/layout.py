"""Keys of a run's objects under its prefix. `units/` is shared with other implementations of the page."""

UNITS = "units/"
"""`units/{identifier}`: a claim; its bytes are the owner's learner ID."""
CONSUMED = "consumed/"
"""`consumed/{identifier}`: a Receipt."""
ALIVE = "alive/"
"""`alive/{learner}/{beat}`: beat 0 registers the learner; later ones hold a NodeProgress."""
LEFT = "left/"
"""`left/{learner}`: the last NodeProgress of a learner that left in good order."""
MODEL = "model/"
"""`model/{learner}.safetensors`: parameters of a learner that trained on its own."""
RUN = "run.json"
"""The manifest that the run was started with."""


def receipt_key(identifier: str) -> str:
    """Return the key of a unit's receipt."""
    return f"{CONSUMED}{identifier}"


def beat_key(learner: str, beat: int) -> str:
    """Return the key of a heartbeat; keys of one learner sort by beat."""
    return f"{ALIVE}{learner}/{beat:010d}"


def left_key(learner: str) -> str:
    """Return the key of a learner's farewell."""
    return f"{LEFT}{learner}"


def model_key(learner: str) -> str:
    """Return the key of a learner's own parameters."""
    return f"{MODEL}{learner}.safetensors"
