"""The GradientRun manifest: one set of models for validation, defaults and the CRD's schema.

`load_manifest` reads a file as a person wrote it and raises ManifestError, one sentence per
problem, each with the path of the field, its value and what is allowed.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

GROUP = "gradientmail.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GradientRun"
PLURAL = "gradientruns"

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
TASK = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
MAILBOX_URL = r"^(s3://[a-z0-9][a-z0-9.-]+(/.*)?|file:///.+)$"
LOST_UNITS = r"^(\d+|(100|\d{1,2})%)$"
BUILT_IN_TASK = "gradientmail.training.tasks.gpt:task"


def _alias(name: str) -> str:
    return to_camel(name).replace("Url", "URL")


class Part(BaseModel):
    """A part of the manifest: camelCase in YAML, snake_case here, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(alias=_alias),
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


class Data(Part):
    """The data grid: `steps` dataset steps of `batch` sequences, cut into `lanes` slices."""

    steps: Annotated[int, Field(ge=1, le=10_000_000, examples=[4000])]
    """Dataset steps of the run."""
    batch: Annotated[int, Field(ge=1, le=1_000_000, examples=[1024])]
    """Sequences in one dataset step, over all lanes. The lanes must divide it."""
    lanes: Annotated[int, Field(ge=1, le=1000, examples=[4])]
    """Slices of each dataset step. Any node may take any lane; as many lanes as nodes is usual."""
    unit_steps: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Consecutive dataset steps in one unit of work. Smaller units balance better and cost more requests."""
    taper: bool = False
    """Shrink the last units towards single steps, so that the slowest node's last unit does not set the end."""

    @property
    def share(self) -> int:
        """Sequences in one lane of one step."""
        return self.batch // self.lanes

    @model_validator(mode="after")
    def _lanes_divide(self) -> Self:
        if self.batch % self.lanes:
            raise ValueError(
                f"batch is {self.batch} and lanes is {self.lanes}: the lanes must divide the batch evenly"
            )
        return self


class MailboxSpec(Part):
    """The object store that the nodes share."""

    url: Annotated[str, Field(pattern=MAILBOX_URL, max_length=512, examples=["s3://bucket/runs"])]
    """Where runs keep their mailboxes; each run gets a fresh prefix below it."""
    endpoint_url: Annotated[str | None, Field(pattern=r"^https?://\S+$", max_length=512)] = None
    """Endpoint of an S3-compatible store; left out for AWS."""
    region: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    """Region of the bucket."""
    checksums: Literal["WhenSupported", "WhenRequired"] = "WhenSupported"
    """`WhenRequired` suits stores that reject the checksums newer clients send."""
    addressing: Literal["Auto", "Path", "Virtual"] = "Auto"
    """How the bucket is named in requests. `Path` suits most self-hosted stores."""
    secret_name: Annotated[str | None, Field(pattern=DNS_LABEL, max_length=253)] = None
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; left out where the pods' service account has a role."""


class Trainer(Part):
    """The program that each node runs."""

    image: Annotated[str, Field(min_length=1, max_length=512)] = "ghcr.io/gradientmail/trainer:0.1.0"
    """Container image of the trainer pods. Not used by `gradientmail local`."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """As in a pod; left out, Kubernetes decides by the image's tag."""
    task: Annotated[str, Field(pattern=TASK, max_length=253)] = BUILT_IN_TASK
    """`package.module:callable` that builds model, optimizer, schedule, data and evaluation."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the task."""
    prefetch: Annotated[int, Field(ge=1, le=10_000)] = 8
    """The most batches buffered ahead of the training loop."""
    claim_ahead: Annotated[int | None, Field(ge=0, le=10_000)] = None
    """Claim the next unit once at most this many batches are left to train; left out, as soon as the buffer has room."""
    micro_batch: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """Sequences in one forward and backward pass. It must divide batch / lanes."""
    clip_norm: Annotated[float | None, Field(gt=0)] = 1.0
    """Largest norm of the gradients; null for no clipping."""
    precision: Literal["Auto", "BFloat16", "Float32"] = "Auto"
    """Autocast of the forward pass. Auto: bfloat16 on CUDA, float32 elsewhere."""
    evaluate_every: Annotated[int | None, Field(ge=1)] = None
    """Held-out loss every so many of the node's own steps, besides the start and the end."""
    log_every: Annotated[int, Field(ge=1)] = 10
    """Log line every so many of the node's own steps."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of the model's initialization: the same on every node."""
    outage_seconds: Annotated[int, Field(ge=0, le=86_400)] = 900
    """How long the store may stay unreachable before a node gives up."""


class Pool(Part):
    """Nodes of one kind."""

    name: Annotated[str, Field(pattern=DNS_LABEL, max_length=40, examples=["a100"])]
    """Name of the pool; its nodes are called `{name}-0`, `{name}-1`, …"""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Nodes in this pool. May be changed while the run is going."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 1
    """GPUs of each node (`nvidia.com/gpu`). Not used by `gradientmail local`."""
    placement: Literal["Spread", "OnePerHost"] = "Spread"
    """Spread: prefer different hosts. OnePerHost: never two nodes of the run on one host."""
    simulated_speed: Annotated[float | None, Field(gt=0, le=1000)] = None
    """Slow this pool's nodes down to this speed relative to the fastest pool's: for trials on equal hardware."""
    template: dict[str, Any] = Field(default_factory=dict)
    """Strategic-merge patch of the pod: tolerations, volumes, resources, env, labels, service account, …"""


def _lost_units(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Spec(Part):
    """What a person asks for."""

    data: Data
    """The data grid."""
    mailbox: MailboxSpec | None = None
    """The object store that the nodes share. `gradientmail local` uses a local folder when this is left out."""
    trainer: Trainer = Field(default_factory=Trainer)
    """The program that each node runs."""
    nodes: Annotated[list[Pool], Field(min_length=1, max_length=50)]
    """Pools of nodes, each of one kind."""
    on_node_failure: Literal["Abandon"] = "Abandon"
    """Abandon: units that a dead node had claimed stay unfinished."""
    restarts_per_node: Annotated[int, Field(ge=0, le=100)] = 3
    """How often one node may fail before it is given up."""
    max_lost_units: Annotated[str, BeforeValidator(_lost_units), Field(pattern=LOST_UNITS)] = "5%"
    """More lost units than this (a number, or a percentage of all units) fail the run."""
    suspend: bool = False
    """Stop all nodes; what they had buffered is lost. Setting it back goes on with the units left."""
    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Raise it to start the run over under a fresh prefix."""
    start_deadline_seconds: Annotated[int | None, Field(ge=1)] = 900
    """Fail the run if no node has started by then."""
    active_deadline_seconds: Annotated[int | None, Field(ge=1)] = None
    """Fail the run if it takes longer than this."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """Delete the run this long after it has ended. The mailbox is kept."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem in (self._micro_batch_problem(), self._duplicate_pool(), self._no_nodes()):
            if problem:
                raise ValueError(problem)
        return self

    def _micro_batch_problem(self) -> str | None:
        share, micro_batch = self.data.share, self.trainer.micro_batch
        if share % micro_batch == 0:
            return None
        return (
            f"trainer.microBatch is {micro_batch} and batch / lanes is {share}: "
            f"microBatch must divide it evenly, as {_nearest_divisor(share, micro_batch)} does"
        )

    def _duplicate_pool(self) -> str | None:
        names = [pool.name for pool in self.nodes]
        twice = next((name for name in names if names.count(name) > 1), None)
        return f"nodes has two pools named {twice!r}: give each pool a name of its own" if twice else None

    def _no_nodes(self) -> str | None:
        if any(pool.replicas for pool in self.nodes):
            return None
        return "nodes has no replicas at all: give at least one pool a replica, or set suspend to pause the run"


class Metadata(BaseModel):
    """The usual object metadata; what is not used here is kept out of the way."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, Field(pattern=DNS_LABEL, max_length=63)]
    namespace: Annotated[str, Field(pattern=DNS_LABEL, max_length=63)] = "default"


class GradientRun(Part):
    """A whole manifest."""

    api_version: Literal["gradientmail.io/v1alpha1"]
    kind: Literal["GradientRun"]
    metadata: Metadata
    spec: Spec
    status: dict[str, Any] | None = Field(default=None, exclude=True)
    """Written by the controller; ignored when read."""


def _nearest_divisor(number: int, wanted: int) -> int:
    return max(divisor for divisor in range(1, min(wanted, number) + 1) if number % divisor == 0)


def is_dns_label(name: str) -> bool:
    """Whether Kubernetes takes the name as a label of at most 63 characters."""
    return len(name) <= 63 and re.match(DNS_LABEL, name) is not None
