"""From our panels to Grafana's JSON, by Grafana's own library, so that every field is one that Grafana knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import barchart, common, dashboard, prometheus, stat, table, timeseries, xychart
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as commons
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.xychart import SeriesMapping, XYShowMode
from hack.dashboards.model import Dashboard, Panel, Shape, Variable

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "gradientmail"
REFRESH = "30s"
SINCE = "now-3h"
RUN_URL = "/d/gradientmail-run?var-datasource=${datasource}&var-namespace=${__data.fields.namespace}&var-run=${__data.fields.run}&${__url_time_range}"  # noqa: E501
INSTANT: tuple[Shape, ...] = ("bars", "table", "number", "words")

Built = TypeVar("Built", timeseries.Panel, stat.Panel, barchart.Panel, table.Panel, xychart.Panel)


def as_json(spec: Dashboard) -> str:
    """Return the dashboard as Grafana imports it."""
    return json.dumps(built(spec).build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def built(spec: Dashboard) -> dashboard.Dashboard:
    """Return the builder of the dashboard; every panel has a place and a number."""
    board = (
        dashboard.Dashboard(spec.title)
        .uid(spec.uid)
        .description(spec.description)
        .tags([TAG])
        .timezone("browser")
        .time(SINCE, "now")
        .refresh(REFRESH)
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(dashboard.DashboardLink("GradientMail").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]))
        .variables([_source_variable(), *map(_variable, spec.variables)])
    )
    number = 0
    for row in spec.rows:
        board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            number += 1
            board.with_panel(_panel(panel, number))
    return board


def _source_variable() -> Builder[models.VariableModel]:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _variable(variable: Variable) -> Builder[models.VariableModel]:
    listed = (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query({"query": f"label_values({variable.metrics}, {variable.name})", "refId": variable.name})
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if variable.many:
        every = models.VariableOption(text="All", value="$__all")
        listed.multi(True).include_all(True).all_value(".*").current(every)
    return listed


def _panel(panel: Panel, number: int) -> Builder[models.Panel]:
    return SHAPES[panel.shape](panel).id(number)


def _common(target: Built, panel: Panel) -> Built:
    target.title(panel.title).description(f"{panel.description}\n\nEmpty: {panel.empty}").no_value(panel.empty)
    target.datasource(SOURCE).height(panel.height).span(panel.width).unit(panel.unit)
    target.targets(list(_targets(panel)))
    target.thresholds(_thresholds(panel))
    if panel.minimum is not None:
        target.min(panel.minimum)
    if panel.maximum is not None:
        target.max(panel.maximum)
    if panel.decimals is not None:
        target.decimals(panel.decimals)
    if panel.rate_window:
        target.interval(panel.rate_window)
    return target


def _targets(panel: Panel) -> Iterable[prometheus.Dataquery]:
    for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
        asked = prometheus.Dataquery().expr(query.expression).legend_format(query.name or "__auto").ref_id(letter)
        asked.datasource(SOURCE)
        if panel.shape in ("bars", "table"):
            asked.format(PromQueryFormat.TABLE)
        yield asked.instant() if panel.shape in INSTANT else asked.range()


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    first = models.Threshold(value=None, color="green")
    steps = [models.Threshold(value=each.value, color=each.color) for each in panel.thresholds]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps([first, *steps])


def _colors(mode: models.FieldColorModeId) -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(mode)


def _legend(*calculations: str) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True).placement(commons.LegendPlacement.BOTTOM)
    if calculations:
        return legend.display_mode(commons.LegendDisplayMode.TABLE).calcs(list(calculations))
    return legend.display_mode(commons.LegendDisplayMode.LIST)


def _tooltip() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(commons.TooltipDisplayMode.MULTI).sort(commons.SortOrder.DESCENDING)


def _lines(panel: Panel) -> timeseries.Panel:
    lines = _common(timeseries.Panel(), panel)
    lines.color_scheme(_colors(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    lines.legend(_legend("lastNotNull", "max")).tooltip(_tooltip())
    lines.line_width(1).show_points(commons.VisibilityMode.NEVER).axis_label(panel.axis)
    if panel.thresholds:
        dashed = commons.GraphThresholdsStyleMode.DASHED
        lines.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    return lines


def _stacked(panel: Panel) -> timeseries.Panel:
    return _lines(panel).fill_opacity(30).stacking(common.StackingConfig().mode(commons.StackingMode.NORMAL))


def _number(panel: Panel) -> stat.Panel:
    number = _common(stat.Panel(), panel)
    number.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    number.color_scheme(_colors(models.FieldColorModeId.THRESHOLDS)).color_mode(commons.BigValueColorMode.VALUE)
    return number.graph_mode(commons.BigValueGraphMode.NONE).text_mode(commons.BigValueTextMode.AUTO)


def _words(panel: Panel) -> stat.Panel:
    return _number(panel).text_mode(commons.BigValueTextMode.NAME)


def _bars(panel: Panel) -> barchart.Panel:
    bars = _common(barchart.Panel(), panel).x_field(panel.key).transformations(_joined(panel))
    bars.color_scheme(_colors(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    return bars.legend(_legend()).tooltip(_tooltip()).axis_label(panel.axis)


def _table(panel: Panel) -> table.Panel:
    rows = _common(table.Panel(), panel).transformations(_joined(panel)).filterable(True)
    for query in panel.queries:
        if query.unit:
            rows.override_by_name(query.name, [models.DynamicConfigValue("unit", query.unit)])
    if panel.links_to_run:
        link = {"title": "Open the run", "url": RUN_URL}
        rows.override_by_name("run", [models.DynamicConfigValue("links", [link])])
    return rows


def _joined(panel: Panel) -> list[models.DataTransformerConfig]:
    """Return what makes one table of the queries' tables: a row per set of labels, a column per query."""
    columns = {f"Value #{letter}": query.name for letter, query in zip(ascii_uppercase, panel.queries, strict=False)}
    left_out = {"Time": True, **{value: True for value, name in columns.items() if name == "phase"}}
    named = {value: name for value, name in columns.items() if name != "phase"}
    order = {name: place for place, name in enumerate(("namespace", "run", "node", "phase", *columns))}
    organize: Mapping[str, object] = {"excludeByName": left_out, "renameByName": named, "indexByName": order}
    return [
        models.DataTransformerConfig(id_val="merge", options={}),
        models.DataTransformerConfig(id_val="organize", options=organize),
    ]


def _curve(panel: Panel) -> xychart.Panel:
    curve = _common(xychart.Panel(), panel).mapping(SeriesMapping.AUTO).show(XYShowMode.POINTS_AND_LINES)
    by_time = models.DataTransformerConfig(id_val="joinByField", options={"byField": "Time", "mode": "outer"})
    curve.transformations([by_time]).axis_label(panel.axis).legend(_legend()).tooltip(_tooltip())
    return curve.color_scheme(_colors(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))


SHAPES: Mapping[Shape, Callable[[Panel], timeseries.Panel | stat.Panel | barchart.Panel | table.Panel | xychart.Panel]]
SHAPES = {
    "lines": _lines,
    "stacked": _stacked,
    "number": _number,
    "words": _words,
    "bars": _bars,
    "table": _table,
    "curve": _curve,
}
