#!/usr/bin/env python3
"""Writes the Grafana dashboards from the tables in panels.py. Standard library only.

  make_dashboards.py           writes the JSON files beside this program
  make_dashboards.py --check   exit status 1 if one of them is not what would be written

Change panels.py, never the JSON: a test holds them together.
"""

import json
import os
import sys

import panels

FOLDER = os.path.dirname(os.path.abspath(__file__))
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TYPES = {"stat": "stat", "bars": "bargauge", "lines": "timeseries", "stack": "timeseries",
         "heatmap": "heatmap", "states": "state-timeline"}


def reduce_options():
    return {"calcs": ["lastNotNull"], "fields": "", "values": False}


def stat_options(_):
    return {"colorMode": "value", "graphMode": "none", "justifyMode": "auto",
            "orientation": "auto", "reduceOptions": reduce_options(), "textMode": "auto",
            "wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard"}


def bar_options(_):
    return {"displayMode": "basic", "orientation": "horizontal", "reduceOptions": reduce_options(),
            "showUnfilled": True, "valueMode": "color", "namePlacement": "auto",
            "sizing": "auto", "minVizHeight": 16, "minVizWidth": 8, "maxVizHeight": 300,
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom",
                       "showLegend": False}}


def line_options(panel):
    calc = "mean" if panel.unit == "percentunit" else "max"
    legend = {"calcs": [calc], "displayMode": "table", "placement": "right", "showLegend": True,
              "sortBy": calc.capitalize(), "sortDesc": True}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc", "hideZeros": True}}


def heat_options(panel):
    return {"calculate": False, "cellGap": 1, "showValue": "never",
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5,
                      "fill": "dark-orange", "reverse": False},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": panel.unit}}


def state_options(_):
    return {"mergeValues": True, "showValue": "auto", "alignValue": "center", "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True,
                       "calcs": []},
            "tooltip": {"mode": "single", "sort": "none"}}


OPTIONS = {"stat": stat_options, "bars": bar_options, "lines": line_options,
           "stack": line_options, "heatmap": heat_options, "states": state_options}


def drawing(panel):
    """How the lines of a panel look."""
    stacked = panel.kind == "stack"
    return {"drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 0 if stacked else 2,
            "fillOpacity": 85 if stacked else 8, "gradientMode": "none", "showPoints": "auto",
            "pointSize": 4, "spanNulls": False, "insertNulls": False, "axisPlacement": "auto",
            "axisBorderShow": False, "axisColorMode": "text", "axisCenteredZero": False,
            "axisLabel": "", "barAlignment": 0, "barWidthFactor": 0.6,
            "scaleDistribution": {"type": "linear"},
            "hideFrom": {"legend": False, "tooltip": False, "viz": False},
            "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
            "thresholdsStyle": {"mode": "off"}}


def colours(panel):
    """The colours of the names that can occur in a panel."""
    found = {}
    for query in panel.queries:
        name = query.legend.removesuffix(" half").removesuffix(" 95 %")
        if name.startswith("{{"):
            found.update(panels.COLOURS.get(name.strip("{}"), {}))
        elif name in panels.COLOURS[""]:
            found[name] = panels.COLOURS[""][name]
    return {} if panel.steps or panel.kind in ("heatmap", "states") else found


def overrides(panel):
    """Colours by name, and limits as dashed lines."""
    def rule(pattern, **properties):
        return {"matcher": {"id": "byRegexp", "options": pattern},
                "properties": [{"id": key.replace("_", "."), "value": value}
                               for key, value in properties.items()]}

    rules = [rule(f"/^{name}( half| 95 %)?$/", color={"mode": "fixed", "fixedColor": colour})
             for name, colour in colours(panel).items()]
    for word in panel.limits:
        rules.append(rule(f"/^{word}/", custom_lineStyle={"fill": "dash", "dash": [8, 6]},
                          custom_fillOpacity=0))
    if any(query.legend.endswith("95 %") for query in panel.queries):
        rules.append(rule("/95 %$/", custom_lineStyle={"fill": "dash", "dash": [2, 4]},
                          custom_fillOpacity=0))
    return rules


def thresholds(panel):
    steps = panel.steps or [(None, "blue")]
    return {"mode": "absolute", "steps": [{"color": colour, "value": value}
                                          for value, colour in steps]}


def field_config(panel):
    defaults = {"unit": panel.unit, "mappings": [], "thresholds": thresholds(panel),
                "color": {"mode": "thresholds" if panel.steps else "palette-classic"}}
    if panel.kind in ("lines", "stack"):
        defaults["custom"] = drawing(panel)
    if panel.kind == "heatmap":
        defaults["custom"] = {"hideFrom": {"legend": False, "tooltip": False, "viz": False},
                              "scaleDistribution": {"type": "linear"}}
    if panel.kind == "states":
        defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0,
                              "hideFrom": {"legend": False, "tooltip": False, "viz": False}}
        defaults["mappings"] = [{"type": "value", "options": {
            "0": {"text": "not writing", "color": "red", "index": 0},
            "1": {"text": "up", "color": "green", "index": 1}}}]
    for key, value in (("min", panel.lowest), ("max", panel.highest),
                       ("noValue", panel.no_value or None)):
        if value is not None:
            defaults[key] = value
    return {"defaults": defaults, "overrides": overrides(panel)}


def target(query, index, kind):
    heat = kind == "heatmap"
    return {"refId": chr(ord("A") + index), "datasource": SOURCE, "editorMode": "code",
            "expr": query.expr, "legendFormat": query.legend, "instant": query.instant,
            "range": not query.instant, "format": "heatmap" if heat else "time_series"}


def panel_json(panel, number, x, y):
    kind = TYPES[panel.kind]
    return {"id": number, "type": kind, "title": panel.title, "description": panel.description,
            "datasource": SOURCE, "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
            "targets": [target(q, i, panel.kind) for i, q in enumerate(panel.queries)],
            "fieldConfig": field_config(panel), "options": OPTIONS[panel.kind](panel)}


def row_json(title, number, y):
    return {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}


def layout(rows):
    """Panels side by side in reading order; a row's title begins a new line."""
    placed, y = [], 0
    for title, row in rows:
        placed.append(row_json(title, len(placed) + 1, y))
        x, y, line_height = 0, y + 1, 0
        for panel in row:
            if x + panel.width > COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            placed.append(panel_json(panel, len(placed) + 1, x, y))
            x, line_height = x + panel.width, max(line_height, panel.height)
        y += line_height
    return placed


def label_variable(name, label, query):
    return {"type": "query", "name": name, "label": label, "datasource": SOURCE,
            "query": {"query": query, "refId": name}, "refresh": 2, "regex": "", "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "options": [],
            "hide": 0, "skipUrlSync": False}


def variables():
    info = "parkade_build_info"
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus",
              "query": "prometheus", "refresh": 1, "regex": "", "multi": False,
              "includeAll": False, "options": [], "hide": 0, "skipUrlSync": False}
    return [source,
            label_variable("model", "Model", f"label_values({info}, model)"),
            label_variable("instance", "Server",
                           f'label_values({info}{{model=~"$model"}}, instance)')]


def dashboard_json(dashboard):
    links = [{"type": "dashboards", "title": "Parkade", "tags": ["parkade"], "asDropdown": False,
              "icon": "external link", "includeVars": True, "keepTime": True, "targetBlank": False,
              "tooltip": "", "url": ""}]
    return {"uid": dashboard.uid, "title": dashboard.title, "description": dashboard.description,
            "tags": ["parkade"], "schemaVersion": 39, "version": 1, "editable": True,
            "graphTooltip": 1, "timezone": "browser", "fiscalYearStartMonth": 0, "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"}, "links": links,
            "annotations": {"list": []}, "templating": {"list": variables()},
            "panels": layout(dashboard.rows)}


def text_of(dashboard):
    return json.dumps(dashboard_json(dashboard), indent=1, ensure_ascii=False) + "\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    other = []
    for dashboard in panels.DASHBOARDS:
        path = os.path.join(FOLDER, dashboard.file)
        if not arguments:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text_of(dashboard))
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != text_of(dashboard):
                other.append(dashboard.file)
    if other:
        sys.exit(f"{', '.join(other)}: not what make_dashboards.py writes")


if __name__ == "__main__":
    main(sys.argv[1:])
