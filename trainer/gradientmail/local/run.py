"""A run on this machine, from the manifest to the summary."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from gradientmail.exits import Exit, UserError
from gradientmail.layout import left_key
from gradientmail.local.broadcast import Broadcast, ScreenAndPage, broadcast
from gradientmail.local.children import Child, Children
from gradientmail.local.folder import Place, prepare, withdraw
from gradientmail.local.history import History
from gradientmail.local.live import Subject
from gradientmail.local.machine import usable_cores, visible_gpus
from gradientmail.local.outcome import End, end_of, exit_code, hopeless
from gradientmail.local.plan import GRACE_SECONDS, NodePlan, node_plans
from gradientmail.local.screen import Screen
from gradientmail.local.serving import Address, check_address
from gradientmail.local.summary import Summary
from gradientmail.local.watching import NodeView, RunView
from gradientmail.mailbox import Mailbox, MailboxError
from gradientmail.progress import NodeProgress
from gradientmail.report.page import View
from gradientmail.report.words import count
from gradientmail.report.writing import Files, write
from gradientmail.run import GradientRun
from gradientmail.runstate import GONE, NotARun, RunState, read_run

LOOK_SECONDS = 0.2
"""Signals and ends of nodes are noticed within this time."""
REST_SECONDS = 2.0
"""How long output is still read once all nodes have ended."""
KILL_SECONDS = GRACE_SECONDS + 5.0
"""A node that was asked to leave and still runs after this time is killed."""


@dataclass(frozen=True)
class LocalOptions:
    """What is asked for besides the manifest."""

    out: Path | None = None
    mailbox: str | None = None
    join: bool = False
    picture: bool = True
    serve: Address | None = None
    """Where to serve the live page and the metrics; None for nowhere."""


class Stops:
    """Signals to this process: the first asks the nodes to leave, the second kills them."""

    def __init__(self) -> None:
        self.count = 0
        self.first: signal.Signals | None = None

    def note(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        self.count += 1
        self.first = self.first or signal.Signals(number)


@contextmanager
def noted_signals() -> Iterator[Stops]:
    """Note SIGINT, SIGTERM and SIGHUP within the block instead of ending by them. For the main thread alone."""
    stops = Stops()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, stops.note) for number in numbers]
    try:
        yield stops
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@dataclass(frozen=True)
class Stage:
    """What a run here is, where it lies, what its lines have told, and what is shown of it."""

    manifest: GradientRun
    place: Place
    history: History
    shown: Broadcast | None


def wait_for_a_signal(tell: Callable[[], object]) -> None:
    """Call `tell` as soon as signals are noted, and return once SIGINT, SIGTERM or SIGHUP has come.

    For the main thread alone.
    """
    with noted_signals() as stops:
        tell()
        while stops.first is None:
            time.sleep(LOOK_SECONDS)


def run_here(
    manifest: GradientRun, source: bytes, options: LocalOptions, screen: Screen, open_until: ExitStack
) -> Summary:
    """Run a manifest's nodes on this machine until all have ended. For the main thread alone.

    `source` is the manifest's text, which the run's folder keeps. Pages are served until `open_until` closes.

    Raises UserError for what the user has to put right: among them the sentence of a node's configuration error.
    """
    names = manifest.spec.node_names
    if not names:
        raise UserError("spec.nodes has no replicas at all: give at least one pool a replica")
    if options.serve:
        check_address(options.serve)
    place = prepare(manifest, source, out=options.out, asked=options.mailbox, join=options.join, moment=time.time())
    plans = node_plans(
        manifest,
        manifest_path=place.manifest.resolve(),
        mailbox=place.mailbox,
        folder=place.nodes.resolve(),
        join=options.join,
        tokens=[secrets.token_hex(3) for _ in names],
        cores=usable_cores(),
        gpus=visible_gpus(os.environ),
        environment=os.environ,
        metrics=options.serve is not None,
    )
    view, history = _first_view(manifest, plans), History()
    shown = _served(manifest, place, history, view, options, open_until)
    stage = Stage(manifest, place, history, shown)
    headline = [f"{manifest.metadata.name}: {count(len(plans), 'node')}, folder {place.folder}"]
    with noted_signals() as stops:
        hearing = [history.note, shown.note] if shown else [history.note]
        watch = Watch(plans, view, stops, ScreenAndPage(screen, shown.live) if shown else screen, hearing)
        watch.run([*headline, shown.told] if shown else headline)
    mistake = hopeless(watch.ends, watch.view.consumed)
    if mistake and stops.first is None:
        if not options.join:
            withdraw(place, [plan.learner for plan in plans])
        raise UserError(mistake.message)
    return _summary(stage, watch, stops, picture=options.picture)


def _served(
    manifest: GradientRun, place: Place, history: History, view: RunView, options: LocalOptions, until: ExitStack
) -> Broadcast | None:
    if options.serve is None:
        return None
    subject = Subject(manifest, manifest.spec.data.grid(), options.join)
    return until.enter_context(broadcast(options.serve, subject, place.box, history, view))


def _first_view(manifest: GradientRun, plans: Sequence[NodePlan]) -> RunView:
    units = manifest.spec.data.grid()
    nodes = {plan.node: NodeView(plan.node, plan.learner) for plan in plans}
    return RunView(len(units), sum(unit.count for unit in units.values()), nodes)


Hear = Callable[[str, str], None]
"""Called with a node's name and each line of its output, on the main thread."""


class Watch:
    """The nodes, from the first one's start to the last one's end."""

    def __init__(
        self, plans: Sequence[NodePlan], view: RunView, stops: Stops, screen: Screen, hearing: Sequence[Hear]
    ) -> None:
        self._plans, self._stops, self._screen, self._hearing = plans, stops, screen, hearing
        self._ends: dict[str, End] = {}
        self._leave_by: float | None = None
        self.view = view

    @property
    def ends(self) -> list[End]:
        """How the nodes have ended that have, in the manifest's order."""
        return [self._ends[plan.node] for plan in self._plans if plan.node in self._ends]

    def run(self, headlines: Sequence[str]) -> None:
        """Start the nodes and return once all have ended."""
        with self._screen, Children(self._plans) as children:
            for headline in headlines:
                self._say(headline)
            while children.running:
                silent = [child for child in children if child.silent]  # all their lines are there to be looked at
                self._look(children)
                self._act(children, silent)
            self._look_at_the_rest(children)
            self._note_ends(children)

    def _look(self, children: Children) -> None:
        for line in children.lines(LOOK_SECONDS):
            self.view = self.view.after(line.node, line.text)
            for hear in self._hearing:
                hear(line.node, line.text)
        with suppress(OSError):  # whoever read the screen has gone
            self._screen.show(self.view)

    def _look_at_the_rest(self, children: Children) -> None:
        # What a node started may hold its output open for longer than the node lives.
        until = time.monotonic() + REST_SECONDS
        while not children.silent and time.monotonic() < until:
            self._look(children)

    def _act(self, children: Children, silent: Sequence[Child]) -> None:
        self._note_ends(silent)
        if self._leave_by is None and self._must_stop():
            children.ask_to_leave()
            self._leave_by = time.monotonic() + KILL_SECONDS
        if self._stops.count > 1 or (self._leave_by is not None and time.monotonic() > self._leave_by):
            children.kill()

    def _must_stop(self) -> bool:
        if self._stops.count:
            self._say("asking the nodes to finish their batch and leave; asking again kills them")
        return bool(self._stops.count or hopeless(self.ends, self.view.consumed))

    def _note_ends(self, children: Iterable[Child]) -> None:
        for child in children:
            if child.plan.node not in self._ends and child.code is not None:
                self._note_end(child.plan, child.code)

    def _note_end(self, plan: NodePlan, code: int) -> None:
        end = end_of(self.view.nodes[plan.node], code, plan.termination_message)
        self._ends[plan.node] = end
        self.view = self.view.ended(plan.node, end.word)
        goes_on = self._leave_by is None and len(self._ends) < len(self._plans)
        if goes_on and end.failed and code != Exit.CONFIGURATION:
            self._say(f"{plan.node} has ended, the others go on: {end.message}")

    def _say(self, text: str) -> None:
        with suppress(OSError):
            self._screen.say(text)


def _summary(stage: Stage, watch: Watch, stops: Stops, *, picture: bool) -> Summary:
    place, ends, views = stage.place, watch.ends, watch.view.nodes
    state, notes = _final_state(place, stage.manifest)
    state = with_farewells(state, place.box, ends, views)
    if stage.shown:
        stage.shown.end(watch.view, None if notes else state)
    view = replace(View.of(state), loss=stage.history.told().loss)
    code = exit_code(ends, missing=missing_units(state, {end.learner for end in ends}), stopped_by=stops.first)
    files = _written(place, view, notes, picture=picture)
    return Summary(view.figures, ends, views, code, place.folder, place.mailbox, files, notes)


def _final_state(place: Place, manifest: GradientRun) -> tuple[RunState, list[str]]:
    nothing = RunState(time.time(), manifest, manifest.spec.data.grid(), receipts={})
    try:
        return read_run(place.box), []
    except NotARun:
        return nothing, []
    except MailboxError as error:
        return nothing, [f"the mailbox could not be read for this summary: {error}"]


def with_farewells(state: RunState, box: Mailbox, ends: Sequence[End], views: Mapping[str, NodeView]) -> RunState:
    """Return the state with every node here known to have left; write the farewell of those that could not.

    So a killed node's units count as lost at once, here and for whoever reads the mailbox later.
    """
    learners = dict(state.learners)
    for end in ends:
        learner = learners.get(end.learner)
        if learner is None or learner.left:
            continue
        word = _farewell(end, views[end.node].progress)
        learners[end.learner] = replace(learner, node=end.node, progress=word, left=True)
        with suppress(MailboxError):
            box.put_if_absent(left_key(end.learner), word.to_json().encode())
    return replace(state, learners=learners)


def _farewell(end: End, progress: NodeProgress | None) -> NodeProgress:
    last = progress or NodeProgress(end.learner, end.node, time=time.time())
    return replace(last, phase="failed" if end.failed else "stopped", message=end.message)


def missing_units(state: RunState, mine: Collection[str]) -> int:
    """Return how many units will not be trained: of all units, or of those claimed here while others go on."""
    lost = state.lost()
    others = [learner for name, learner in state.learners.items() if name not in mine]
    if any(learner.presence(state.read_at) not in GONE for learner in others):
        return sum(owner in mine for owner in lost.values())
    return len(state.units) - len(state.consumed)


def _written(place: Place, view: View, notes: list[str], *, picture: bool) -> list[Path]:
    """Write the report and the timeline; what cannot be written becomes a note."""
    texts = Files.of_folder(place.folder, picture=False)
    pictures = Files.of_folder(place.folder, picture=picture).pictures
    written = []
    for files in (texts, Files(**pictures)):
        try:
            written += write(view, files, "the figures are those above")
        except UserError as error:
            notes.append(str(error))
    return written
