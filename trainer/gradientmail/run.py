"""The GradientRun manifest: one set of models for validation, defaults and the CRD's schema.

`gradientmail.manifest.load_manifest` reads a file as a person wrote it, and says what is wrong
with it in sentences. Rules across fields stand next to the fields, in Python and in CEL, so that
`gradientmail local` and the API server refuse the same manifests with the same words.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from gradientmail.run_rules import Rule, Transition, Value, constant
from gradientmail.units import Unit, grid

GROUP = "gradientmail.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GradientRun"
PLURAL = "gradientruns"

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
TASK = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"
MAILBOX_URL = r"^(s3://[a-z0-9][a-z0-9.-]+(/[^\r\n\t@?#]*)?|file:///[^\r\n\t@?#]+)$"
ENDPOINT_URL = r"^https?://[^\s@/?#]+(/[^\s@?#]*)?$"
WORD = r"^\S+$"
LOST_UNITS = r"^([0-9]{1,9}|(100|[0-9]{1,2})%)$"
BUILT_IN_TASK = "gradientmail.training.tasks.gpt:task"
MOST_NODES = 1000
MOST_UNITS = 1_000_000
"""Units that a run may have: each node holds all their identifiers in memory."""

Seconds = Annotated[int, Field(ge=1, le=2**31 - 1)]


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
        hide_input_in_errors=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """What must hold across this part's fields."""
    transitions: ClassVar[tuple[Transition, ...]] = ()
    """What an update must leave as it was; only the API server can tell."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, value: Any) -> Any:
        """Drop nulls where they mean nothing, as the API server does: `args:` with nothing after it is `args: {}`."""
        if not isinstance(value, dict):
            return value
        meaningless = {field.alias for field in cls.model_fields.values() if field.default is not None}
        meaningless -= {field.alias for field in cls.model_fields.values() if _takes_null(field.annotation)}
        return {name: item for name, item in value.items() if item is not None or name not in meaningless}

    @model_validator(mode="after")
    def _obeys_rules(self) -> Self:
        problems = [(rule.path, rule.sentence_for(self)) for rule in self.rules if not rule.holds(self)]
        if problems:
            sentences = "; ".join(sentence for _, sentence in problems)
            raise PydanticCustomError("rules", "{sentences}", {"sentences": sentences, "problems": problems})
        return self

    @model_serializer(mode="wrap")
    def _without_idle_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        idle = {
            name
            for field_name, field in type(self).model_fields.items()
            if field.default is None
            for name in (field_name, field.alias)
        }
        return {name: item for name, item in handler(self).items() if item is not None or name not in idle}


def _takes_null(annotation: Any) -> bool:
    return type(None) in getattr(annotation, "__args__", ())


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

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            path="lanes",
            holds=lambda data: data.batch % data.lanes == 0,
            cel="self.batch % self.lanes == 0",
            sentence="lanes is {lanes} and batch is {batch}: the lanes must divide the batch evenly",
            values={
                "lanes": Value("self.lanes", lambda data: data.lanes),
                "batch": Value("self.batch", lambda data: data.batch),
            },
        ),
        Rule(
            path="unitSteps",
            holds=lambda data: data.even_units <= MOST_UNITS,
            cel=f"(self.steps + self.unitSteps - 1) / self.unitSteps * self.lanes <= {MOST_UNITS}",
            sentence="unitSteps is {unit_steps}, which makes {units} units: raise it, a run has at most {most}",
            values={
                "unit_steps": Value("self.unitSteps", lambda data: data.unit_steps),
                "units": Value(
                    "(self.steps + self.unitSteps - 1) / self.unitSteps * self.lanes", lambda data: data.even_units
                ),
                "most": constant(MOST_UNITS),
            },
        ),
    )

    @property
    def share(self) -> int:
        """Sequences in one lane of one step."""
        return self.batch // self.lanes

    @property
    def even_units(self) -> int:
        """Units of the run without the taper, which adds a few."""
        return -(-self.steps // self.unit_steps) * self.lanes

    def grid(self) -> dict[str, Unit]:
        """Return the run's units by identifier, in claiming order: the same on every node."""
        return grid(steps=self.steps, unit_steps=self.unit_steps, lanes=self.lanes, taper=self.taper)


class MailboxSpec(Part):
    """The object store that the nodes share."""

    url: Annotated[str, Field(pattern=MAILBOX_URL, max_length=512, examples=["s3://bucket/runs"])]
    """Where runs keep their mailboxes; each run gets a fresh prefix below it."""
    endpoint_url: Annotated[str | None, Field(pattern=ENDPOINT_URL, max_length=512)] = None
    """Endpoint of an S3-compatible store; left out for AWS."""
    region: Annotated[str | None, Field(pattern=WORD, max_length=64)] = None
    """Region of the bucket."""
    checksums: Literal["WhenSupported", "WhenRequired"] = "WhenSupported"
    """`WhenRequired` suits stores that reject the checksums newer clients send."""
    addressing: Literal["Auto", "Path", "Virtual"] = "Auto"
    """How the bucket is named in requests. `Path` suits most self-hosted stores."""
    secret_name: Annotated[str | None, Field(pattern=DNS_SUBDOMAIN, max_length=253)] = None
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; left out where the pods' service account has a role."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            path="url",
            holds=lambda _: True,  # On one machine a folder serves.
            cel='self.url.startsWith("s3://")',
            sentence="nodes on a cluster share a bucket: give an s3:// address",
        ),
    )


class Exchange(Part):
    """How the nodes exchange parameters through the mailbox. `mode: Solo` switches it off."""

    mode: Literal["Asynchronous", "Solo"] = "Asynchronous"
    """Asynchronous: the nodes train one model, none waits for another. Solo: each node trains a model of its own."""
    sync_every: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    """Own optimizer steps after which a node opens the next round of a fragment."""
    fragments: Annotated[int, Field(ge=1, le=256)] = 8
    """Parts of the parameters, at most one per parameter; their rounds are staggered."""
    outer_lr: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Learning rate of the outer step, which moves the shared parameters by the nodes' mean change."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Nesterov momentum of the outer step, which grows to this over the first 400 steps of the fastest node."""
    transfer_dtype: Literal["BFloat16", "Float32"] = "BFloat16"
    """Type in which changes travel; the shared parameters themselves are float32."""
    patience_seconds: Annotated[int, Field(ge=0, le=86_400)] = 30
    """How long a round stays open for nodes that take part. Training does not wait for it."""
    takeover_seconds: Annotated[int | None, Field(ge=0, le=86_400)] = None
    """How much longer each further node waits before it closes a round itself; left out, as patienceSeconds."""
    flush_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """How long a node that ends waits until its last steps are merged. After SIGTERM, the grace time limits it too."""
    poll_seconds: Annotated[float | None, Field(gt=0, le=3600)] = None
    """How often to look for rounds; left out, 20 times per round, every 0.05 to 5 s."""

    @property
    def solo(self) -> bool:
        """Whether nothing is exchanged."""
        return self.mode == "Solo"


class Trainer(Part):
    """The program that each node runs."""

    image: Annotated[str, Field(pattern=WORD, max_length=512)] = "ghcr.io/gradientmail/trainer:0.1.0"
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
    """Claim the next unit once at most this many batches are left to train; left out, once the buffer has room."""
    micro_batch: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """Sequences in one forward and backward pass. It must divide batch / lanes."""
    clip_norm: Annotated[float | None, Field(gt=0, le=1e9)] = 1.0
    """Largest norm of the gradients; null for no clipping."""
    precision: Literal["Auto", "BFloat16", "Float32"] = "Auto"
    """Autocast of the forward pass. Auto: bfloat16 on CUDA, float32 elsewhere."""
    evaluate_every: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    """Held-out loss every so many of the node's own steps, besides the start and the end."""
    log_every: Annotated[int, Field(ge=1, le=2**31 - 1)] = 10
    """Log line every so many of the node's own steps."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of the model's initialization: the same on every node."""
    outage_seconds: Annotated[int, Field(ge=0, le=86_400)] = 900
    """How long the store may stay unreachable before a node gives up."""
    exchange: Exchange = Field(default_factory=Exchange)
    """How the nodes exchange parameters through the mailbox."""


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

    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition(
            "gpus", "a pool's gpus cannot change while the run exists: add a pool, and set this one's replicas to 0"
        ),
        Transition(
            "placement",
            "a pool's placement cannot change while the run exists: add a pool, and set this one's replicas to 0",
        ),
        Transition("simulatedSpeed", "a pool's simulatedSpeed cannot change while the run exists", optional=True),
        Transition(
            "template",
            "a pool's template cannot change while the run exists: add a pool, and set this one's replicas to 0",
        ),
    )


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
    max_lost_units: Annotated[Annotated[str, Field(pattern=LOST_UNITS)], BeforeValidator(_lost_units)] = "5%"
    """More lost units than this (a number, or a percentage of all units) fail the run."""
    suspend: bool = False
    """Stop all nodes; what they had buffered is lost. Setting it back goes on with the units left."""
    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Raise it to start the run over under a fresh prefix."""
    start_deadline_seconds: Seconds | None = 900
    """Fail the run if no node has started by then; null for no such limit."""
    active_deadline_seconds: Seconds | None = None
    """Fail the run if it takes longer than this."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    """Delete the run this long after it has ended. The mailbox is kept."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            path="trainer.microBatch",
            holds=lambda spec: spec.data.share % spec.trainer.micro_batch == 0,
            cel=(
                "self.data.batch % self.data.lanes != 0 || "
                "self.data.batch / self.data.lanes % self.trainer.microBatch == 0"
            ),
            sentence="microBatch is {micro_batch} and batch / lanes is {share}: microBatch must divide it evenly",
            values={
                "micro_batch": Value("self.trainer.microBatch", lambda spec: spec.trainer.micro_batch),
                "share": Value("self.data.batch / self.data.lanes", lambda spec: spec.data.share),
            },
            hint=lambda spec: f", as {_nearest_divisor(spec.data.share, spec.trainer.micro_batch)} does",
        ),
        Rule(
            path="nodes",
            holds=lambda spec: spec.duplicate_pool is None,
            cel=None,  # The list is a map by name: the API server itself refuses a second entry.
            sentence="two pools are named {name}: give each pool a name of its own",
            values={"name": Value("", lambda spec: spec.duplicate_pool)},
        ),
        Rule(
            path="nodes",
            holds=lambda spec: spec.replicas > 0,
            cel="self.nodes.exists(pool, pool.replicas > 0)",
            sentence="no pool has a replica: give at least one pool a replica, or set suspend to pause the run",
        ),
        Rule(
            path="nodes",
            holds=lambda spec: spec.replicas <= MOST_NODES,
            cel=f"self.nodes.map(pool, pool.replicas).sum() <= {MOST_NODES}",
            sentence="the pools have {replicas} replicas together: a run has at most {most} nodes",
            values={
                "replicas": Value("self.nodes.map(pool, pool.replicas).sum()", lambda spec: spec.replicas),
                "most": constant(MOST_NODES),
            },
        ),
    )
    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition("data", "data cannot change once the run exists: create another run"),
        Transition("mailbox", "mailbox cannot change once the run exists: create another run", optional=True),
        Transition("trainer", "trainer cannot change once the run exists: create another run"),
        Transition("onNodeFailure", "onNodeFailure cannot change once the run exists: create another run"),
        Transition(
            "attempt",
            "attempt can only be raised: each attempt has a prefix of its own, which is never used again",
            cel="self.attempt >= oldSelf.attempt",
        ),
        Transition(
            "nodes",
            "pools can be added but neither removed nor renamed: set a pool's replicas to 0 instead",
            cel="oldSelf.nodes.all(old, self.nodes.exists(pool, pool.name == old.name))",
        ),
    )

    @property
    def replicas(self) -> int:
        """Nodes of all pools."""
        return sum(pool.replicas for pool in self.nodes)

    @property
    def node_names(self) -> list[str]:
        """Names of all nodes, `{pool}-{index}`, in the manifest's order."""
        return [f"{pool.name}-{index}" for pool in self.nodes for index in range(pool.replicas)]

    @property
    def relative_speeds(self) -> dict[str, float]:
        """Each pool's simulated speed by name, as a fraction of the fastest's; a pool without one is not slowed: 1."""
        fastest = max((pool.simulated_speed for pool in self.nodes if pool.simulated_speed), default=1.0)
        return {pool.name: (pool.simulated_speed or fastest) / fastest for pool in self.nodes}

    @property
    def duplicate_pool(self) -> str | None:
        """The first name that two pools share."""
        names = [pool.name for pool in self.nodes]
        return next((name for index, name in enumerate(names) if name in names[:index]), None)


class Metadata(BaseModel):
    """The usual object metadata; what is not used here is kept as it is."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=DNS_LABEL, max_length=63, examples=["first"])]
    """Name of the run."""
    namespace: Annotated[str, Field(pattern=DNS_LABEL, max_length=63)] = "default"
    """Namespace of the run; left out, the one that kubectl is set to."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the run."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the run."""

    @model_serializer(mode="wrap")
    def _only_what_was_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: item for name, item in handler(self).items() if item and (name in self.model_fields_set)}


class GradientRun(Part):
    """A training run: one task on unequal nodes that share a queue of work in an object store."""

    api_version: Literal["gradientmail.io/v1alpha1"]
    """Version of the manifest's form."""
    kind: Literal["GradientRun"]
    """What this is."""
    metadata: Metadata
    """Name, namespace, labels, …"""
    spec: Spec
    """What a person asks for."""
    status: dict[str, Any] | None = Field(default=None, exclude=True)
    """Written by the controller (see run_status); ignored when read."""


def _nearest_divisor(number: int, wanted: int) -> int:
    return max(divisor for divisor in range(1, min(wanted, number) + 1) if number % divisor == 0)
