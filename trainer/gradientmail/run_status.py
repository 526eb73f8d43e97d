"""What the controller writes into a GradientRun's status: models for it, and for the CRD's schema.

The API server drops every field that is not declared here. Nothing has a default in the CRD: what is
read back is what was written.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gradientmail.run import Part

RunPhase = Literal["Pending", "Running", "Suspended", "Succeeded", "Failed"]
NodePhase = Literal["Pending", "Running", "Succeeded", "Failed"]

NODES_LISTED = 50
"""Nodes that a status can list one by one; pools sum up all of them."""
MOST_LEARNERS = 3_000
"""Records that a status can hold: 400 bytes each, with the names and their owner, of the 1.5 MB that etcd takes."""

Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(max_length=1024)]
Name = Annotated[str, Field(max_length=253)]


class UnitCounts(Part):
    """The run's units, over all nodes."""

    total: Count = 0
    """Units of the run."""
    claimed: Count = 0
    """Units that a node has reserved."""
    consumed: Count = 0
    """Units trained to their last batch."""
    lost: Count = 0
    """Units reserved by a node that has ended without training them."""
    percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Consumed of all, rounded down."""


class NodeStatus(Part):
    """One node."""

    name: Name
    """Name of the node, `{pool}-{index}`."""
    pool: Name
    """Its pool."""
    pod: Name = ""
    """Its latest pod, which is its learner ID in the mailbox."""
    phase: NodePhase = "Pending"
    """What it does."""
    claimed: Count = 0
    """Units that it has reserved, over all its pods."""
    consumed: Count = 0
    """Units that it has trained, over all its pods."""
    step: Count | None = None
    """Dataset step of its last batch."""
    restarts: Count = 0
    """How often it was started again."""
    message: Text = ""
    """Why it waits, or how it ended."""


class PoolStatus(Part):
    """One pool, over all its nodes."""

    name: Name
    """Name of the pool."""
    replicas: Count = 0
    """Nodes that it should have."""
    running: Count = 0
    """Nodes whose trainer runs."""
    succeeded: Count = 0
    """Nodes that have found no more work."""
    failed: Count = 0
    """Nodes that were given up."""
    claimed: Count = 0
    """Units that its nodes have reserved."""
    consumed: Count = 0
    """Units that its nodes have trained."""


class LearnerRecord(Part):
    """Units of one pod, or of all earlier pods of a node together: final counts survive the pods."""

    node: Name
    """Its node."""
    pod: Name
    """The pod; empty for those that are gone."""
    claimed: Count = 0
    """Units reserved."""
    consumed: Count = 0
    """Units trained."""


class Condition(Part):
    """A condition as in other Kubernetes objects."""

    type: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=316)]
    """Running, Suspended, Stalled, Complete or Failed."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: Count | None = None
    """Generation of the run that it is about."""
    last_transition_time: AwareDatetime
    """When `status` last changed."""
    reason: Annotated[str, Field(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", max_length=1024)]
    """Why, in one word for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, and what to do, for people."""


class RunStatus(Part):
    """What the controller has seen of the run; written by it alone."""

    phase: RunPhase | None = None
    """Where the run stands, in one word; the conditions say why."""
    observed_generation: Count | None = None
    """Generation of the spec that this status is about."""
    attempt: Annotated[int | None, Field(ge=1)] = None
    """Attempt that this status is about."""
    mailbox_prefix: Annotated[str | None, Field(max_length=1024)] = None
    """Mailbox of the attempt: recorded before the first pod, never used by another."""
    start_time: AwareDatetime | None = None
    """When the attempt was accepted."""
    completion_time: AwareDatetime | None = None
    """When the attempt ended."""
    units: UnitCounts | None = None
    """Units over all nodes."""
    estimated_remaining_seconds: Count | None = None
    """Time to the end at the present pace."""
    nodes_running: Count | None = None
    """Nodes whose trainer runs."""
    nodes_wanted: Count | None = None
    """Nodes that the pools should have."""
    nodes: Annotated[list[NodeStatus], Field(max_length=NODES_LISTED)] = Field(default_factory=list)
    """Nodes one by one, of large runs only fifty: those that run well are left to the pools' sums first."""
    pools: Annotated[list[PoolStatus], Field(max_length=50)] = Field(default_factory=list)
    """Pools, each over all its nodes."""
    learners: Annotated[list[LearnerRecord], Field(max_length=MOST_LEARNERS)] = Field(default_factory=list)
    """Counts of every pod that ran, from which the others are summed."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(default_factory=list)
    """What holds of the run, and why."""
