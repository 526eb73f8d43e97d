"""Keys of a run's objects under its prefix. `units/` is shared with other implementations of the page. Pure."""

from gradientmail.mailbox.errors import InvalidKey
from gradientmail.mailbox.keys import problem

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
FINAL = "model/final.safetensors"
"""The run's model, written by the last learner to leave the exchange."""
RUN = "run.json"
"""The manifest that the run was started with."""


def check_identifier(identifier: str) -> None:
    """Raise InvalidKey if a unit's identifier cannot be part of a key."""
    _check("unit identifier", identifier, claim_key(identifier))


def check_learner_id(learner_id: str) -> None:
    """Raise InvalidKey if a learner ID cannot be part of a key."""
    _check("learner ID", learner_id, beat_key(learner_id, 0))


def _check(what: str, name: object, key: str) -> None:
    if reason := _problem(name, key):
        raise InvalidKey(f"{what} {name!r} cannot be used: {reason}")


def _problem(name: object, key: str) -> str | None:
    if not isinstance(name, str):
        return f"it is not text but of type {type(name).__name__}"
    return "it is empty" if not name else "it has a '/'" if "/" in name else problem(key)


def claim_key(identifier: str) -> str:
    """Return the key of the claim on a unit."""
    return f"{UNITS}{identifier}"


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
