"""Panels of a run about its work: progress, shares, data, learning."""

from __future__ import annotations

from hack.dashboards.expressions import (
    ONE_RUN,
    gauge,
    least,
    node_units,
    nodes,
    progress,
    quantile,
    rate,
    rate_by_node,
    seconds_left,
    share,
    speed,
    units,
    units_done,
    units_in_all,
    waiting,
)
from hack.dashboards.model import ALARM, WARN, Panel, Query, Row, Threshold
from hack.dashboards.words import NO_CONTROLLER, NO_LOSS, NO_PACE, NO_TRAINER, NODE

GLANCE = Row(
    "At a glance",
    (
        Panel(
            "Phase",
            "words",
            "none",
            (Query(f"max by (phase) (gradientrun_phase{{{ONE_RUN}}}) == 1", "{{phase}}"),),
            "The run's phase, as `kubectl get grun` shows it.",
            NO_CONTROLLER,
            width=4,
            height=4,
        ),
        Panel(
            "Progress",
            "number",
            "percentunit",
            (Query(progress(ONE_RUN)),),
            "Share of the units that have been trained to their last batch. Lost units never are, so a run that lost "
            "some ends below 100 %.",
            NO_TRAINER,
            width=4,
            height=4,
            maximum=1,
            decimals=1,
        ),
        Panel(
            "Time left",
            "number",
            "s",
            (Query(seconds_left(ONE_RUN)),),
            "How long the units left will take: the controller's estimate, or where none is scraped, what the pace of "
            "the last five minutes makes it, which is too long while a run is young.",
            NO_PACE,
            width=4,
            height=4,
            rate_window="5m",
        ),
        Panel(
            "Nodes that answer",
            "number",
            "none",
            (
                Query(nodes(ONE_RUN), "answering"),
                Query(f'max(gradientrun_nodes{{{ONE_RUN}, state="wanted"}})', "wanted"),
            ),
            "Trainers that Prometheus reaches, beside those the run asks for. Fewer is no failure: the others take "
            "the units. Look at the pods if it stays so.",
            NO_TRAINER,
            width=4,
            height=4,
        ),
        Panel(
            "Lost units",
            "number",
            "none",
            (Query(units("lost", ONE_RUN), "lost"),),
            "Units claimed by a node that is gone and will not finish them. Claims are permanent: nobody else trains "
            "them.",
            NO_CONTROLLER,
            width=4,
            height=4,
            thresholds=(Threshold(1, WARN),),
        ),
        Panel(
            "Throughput",
            "number",
            "short",
            (Query(rate("gradientmail_samples_total", ONE_RUN, ""), "tokens per second"),),
            "Tokens per second that all nodes train together.",
            NO_TRAINER,
            width=4,
            height=4,
        ),
    ),
)

SHARES = Row(
    "Who takes how much",
    (
        Panel(
            "Units consumed by node",
            "lines",
            "none",
            (Query(node_units("consumed", ONE_RUN), NODE),),
            "Units trained to their last batch, over all processes of a node. Slopes differ as the nodes' speeds do; "
            "all end together. A flat line is a node that trains nothing.",
            NO_TRAINER,
            axis="units",
        ),
        Panel(
            "Units claimed by node",
            "lines",
            "none",
            (Query(node_units("claimed", ONE_RUN), NODE),),
            "Units that a node owns. It runs ahead of the consumed ones by what is loaded ahead, a unit or two.",
            NO_TRAINER,
            axis="units",
        ),
        Panel(
            "Share of units against share of speed",
            "bars",
            "percentunit",
            (Query(share(node_units("consumed", ONE_RUN)), "of units"), Query(share(speed(ONE_RUN)), "of speed")),
            "What each node has taken of all units, beside its part of the summed speed while training. The two agree "
            "where the queue balances the load. Fewer units than speed: the node joined late, waits for data, or was "
            "away.",
            NO_TRAINER,
            maximum=1,
        ),
        Panel(
            "Throughput by node",
            "stacked",
            "short",
            (Query(rate_by_node("gradientmail_samples_total"), NODE),),
            "Tokens per second of each node; the outline is the run's.",
            NO_TRAINER,
            axis="tokens per second",
        ),
        Panel(
            "Progress over time",
            "lines",
            "none",
            (
                Query(units_in_all(ONE_RUN), "all units"),
                Query(units_done("claimed", ONE_RUN), "claimed"),
                Query(units_done("consumed", ONE_RUN), "consumed"),
            ),
            "The run ends where the consumed units reach all units, less the lost ones.",
            NO_TRAINER,
            axis="units",
        ),
        Panel(
            "Time left over time",
            "lines",
            "s",
            (Query(seconds_left(ONE_RUN), "left"),),
            "It should fall by a second a second. Where it rises, nodes have become slower or fewer.",
            NO_PACE,
            rate_window="5m",
        ),
    ),
)

DATA = Row(
    "Is any GPU waiting for data",
    (
        Panel(
            "Share of time waiting for data",
            "lines",
            "percentunit",
            (Query(waiting(ONE_RUN, "node"), NODE),),
            "Part of its time that the training loop waits for a batch. Above 5 %, raise trainer.prefetch or make the "
            "reader faster; at 100 %, the buffer is empty and the GPU idle: look at the mailbox below. A gap is a "
            "batch that fills the window.",
            NO_TRAINER,
            thresholds=(Threshold(0.05, WARN), Threshold(0.2, ALARM)),
            maximum=1,
        ),
        Panel(
            "Batches ready",
            "lines",
            "none",
            (Query(least("gradientmail_buffered_batches", ONE_RUN, "node"), NODE),),
            "Batches loaded ahead and not yet taken, the fewest in the window. Near trainer.prefetch, loading keeps "
            "up; at 0, the GPU was about to wait.",
            NO_TRAINER,
            axis="batches",
        ),
        Panel(
            "Time to load a unit",
            "lines",
            "s",
            (
                Query(quantile(0.5, "gradientmail_load_seconds", ONE_RUN, "node"), "{{node}}, median"),
                Query(quantile(0.95, "gradientmail_load_seconds", ONE_RUN, "node"), "{{node}}, 95 %"),
            ),
            "Time that reading all batches of a unit takes, on the background thread. It has to stay below the time "
            "that training them takes.",
            "No unit has been loaded in the window of the rate.",
        ),
    ),
)

LEARNING = Row(
    "Does it learn",
    (
        Panel(
            "Loss by step",
            "curve",
            "none",
            (
                Query(f"max(gradientmail_step{{{ONE_RUN}}})", "step"),
                Query(f"avg(gradientmail_loss{{{ONE_RUN}}})", "training loss"),
                Query(f"avg(gradientmail_held_out_loss{{{ONE_RUN}}})", "held-out loss"),
            ),
            "Mean loss over the nodes by the dataset step of the node that is furthest, so that runs of different "
            "speed compare.",
            NO_LOSS,
            axis="nats per token",
            minimum=None,
            key="time",
        ),
        Panel(
            "Loss by node",
            "lines",
            "none",
            (Query(gauge("gradientmail_loss", ONE_RUN, "node"), NODE),),
            "Training loss of the last logged step. A node far from the others has drifted: look at its exchange.",
            NO_LOSS,
            axis="nats per token",
            minimum=None,
        ),
        Panel(
            "Held-out loss by node",
            "lines",
            "none",
            (Query(gauge("gradientmail_held_out_loss", ONE_RUN, "node"), NODE),),
            "Loss on data that is never trained on; the figure to judge a run by.",
            "The task evaluates nothing, or has not yet.",
            axis="nats per token",
            minimum=None,
        ),
        Panel(
            "Dataset step by node",
            "lines",
            "none",
            (Query(gauge("gradientmail_step", ONE_RUN, "node"), NODE),),
            "Step of the last batch. All nodes advance over the same data, so the lines stay close together.",
            NO_TRAINER,
            axis="step",
            width=12,
        ),
        Panel(
            "Optimizer steps by node",
            "lines",
            "none",
            (Query(f"60 * {rate_by_node('gradientmail_batches_total')}", NODE),),
            "Batches that each node trains in a minute: its speed.",
            NO_TRAINER,
            axis="batches per minute",
            width=12,
        ),
    ),
)
