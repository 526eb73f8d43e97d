"""What is asked of Prometheus. Functions take a selector of runs and return an expression.

Counters of a trainer end with its process, so rates come from the trainers and totals from the controller, which keeps
them until the run is deleted. Where no controller is scraped, as in a local run, totals are the last word of every
process that Prometheus has seen in the time shown, added up; a unit finished after the last scrape is missing then.
Gauges of the controller are taken by `max`, so that two scrapes of it do not count twice.
"""

from __future__ import annotations

ONE_RUN = 'namespace="$namespace", run="$run"'
ALL_RUNS = 'namespace=~"$namespace"'
WINDOW = "[$__rate_interval]"
SHOWN = "[$__range]"


def rate(metric: str, select: str, by: str, *, matching: str = "") -> str:
    """Return a counter's increase per second, summed by labels."""
    chosen = f"{select}, {matching}" if matching else select
    return f"{summed(by)} (rate({metric}{{{chosen}}}{WINDOW}))"


def rate_by_node(metric: str) -> str:
    """Return a counter's increase per second of each node of one run."""
    return rate(metric, ONE_RUN, "node")


def summed(by: str) -> str:
    """Return the head of a sum by labels; none means all in one."""
    return f"sum by ({by})" if by else "sum"


def latest(by: str) -> str:
    """Return the head of a maximum by labels, for what only one source says."""
    return f"max by ({by})" if by else "max"


def units(state: str, select: str, by: str = "") -> str:
    """Return units of runs by state: total, claimed, consumed or lost. Of the controller alone."""
    return f'{latest(by)} (gradientrun_units{{{select}, state="{state}"}})'


def last_words(metric: str, select: str, by: str = "", head: str = "sum") -> str:
    """Return the last value of every process in the time shown, added up by labels."""
    labels = f" by ({by})" if by else ""
    return f"{head}{labels} (last_over_time({metric}{{{select}}}{SHOWN}))"


def units_done(state: str, select: str, by: str = "") -> str:
    """Return claimed or consumed units of runs: the controller's, else the trainers' last words."""
    return f"({units(state, select, by)} or {last_words(f'gradientmail_units_{state}_total', select, by)})"


def units_in_all(select: str, by: str = "") -> str:
    """Return the units of runs' data grids."""
    counted = f"({units('total', select, by)} > 0)"
    return f"({counted} or {last_words('gradientmail_units', select, by, 'max')})"


def node_units(state: str, select: str) -> str:
    """Return claimed or consumed units by node, over all its processes."""
    kept = f'max by (node) (gradientrun_node_units{{{select}, state="{state}"}})'
    return f"({kept} or {last_words(f'gradientmail_units_{state}_total', select, 'node')})"


def progress(select: str, by: str = "") -> str:
    """Return the consumed share of units, 0 to 1."""
    return f"{units_done('consumed', select, by)} / {units_in_all(select, by)}"


def seconds_left(select: str) -> str:
    """Return the time to the end: the controller's estimate, else what the units left take at the window's pace.

    The pace is a slope, of the processes that answer: a rate would be divided by the whole window, also by the part of
    it before the run began. A process's counter never falls, and the next process has a series of its own. Before one
    unit in a hundred is done, there is no telling.
    """
    counters = f"gradientmail_units_consumed_total{{{select}}}"
    in_all = last_words("gradientmail_units", select, head="max")
    consumed = last_words("gradientmail_units_consumed_total", select)
    pace = f"sum(deriv({counters}{WINDOW}) and {counters})"
    estimate = f"({in_all} - {consumed}) / ({pace} > 0) and {consumed} >= 0.01 * {in_all}"
    return f"max(gradientrun_estimated_remaining_seconds{{{select}}}) or {estimate}"


def nodes(select: str, by: str = "") -> str:
    """Return how many nodes answer."""
    labels = ", ".join(dict.fromkeys([*filter(None, [by]), "namespace", "run", "node"]))
    return f"count{f' by ({by})' if by else ''} (sum by ({labels}) (gradientmail_units{{{select}}}))"


def share(expression: str) -> str:
    """Return each series' share of the sum of all, 0 to 1."""
    return f"{expression} / scalar(sum({expression}) > 0)"


def speed(select: str) -> str:
    """Return tokens per second of training by node: how fast it is while it has data."""
    tokens = f"sum by (node) (rate(gradientmail_samples_total{{{select}}}{SHOWN}))"
    return f"({tokens} / (sum by (node) (rate(gradientmail_train_seconds_total{{{select}}}{SHOWN})) > 0))"


def waiting(select: str, by: str) -> str:
    """Return the share of its time that a node waits for data, 0 to 1; nothing while one batch fills the window."""
    wait = rate("gradientmail_wait_seconds_total", select, by)
    train = rate("gradientmail_train_seconds_total", select, by)
    return f"{wait} / ({wait} + {train} > 0)"


def quantile(of: float, histogram: str, select: str, by: str = "") -> str:
    """Return a quantile of a histogram over the window, by labels."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({of}, {rate(f'{histogram}_bucket', select, labels)})"


def restarts(select: str) -> str:
    """Return how often each node was started again: the controller's count, else processes seen beyond the first."""
    processes = f"count by (node) (last_over_time(gradientmail_units{{{select}}}{SHOWN})) - 1"
    return f"max by (node) (gradientrun_node_restarts{{{select}}}) or {processes}"


def unfinished_of_the_gone(select: str) -> str:
    """Return units that processes owned and had not finished when last seen, of those not seen within the window."""
    claimed, consumed = (f"gradientmail_units_{state}_total{{{select}}}" for state in ("claimed", "consumed"))
    held = f"last_over_time({claimed}{SHOWN}) - last_over_time({consumed}{SHOWN})"
    return f"sum by (node) (({held}) unless last_over_time({claimed}{WINDOW}))"


def gauge(metric: str, select: str, by: str) -> str:
    """Return a gauge by labels, the largest where several series have them."""
    return f"{latest(by)} ({metric}{{{select}}})"


def least(metric: str, select: str, by: str) -> str:
    """Return the smallest value of a gauge in the window, by labels."""
    return f"min by ({by}) (min_over_time({metric}{{{select}}}{WINDOW}))"
