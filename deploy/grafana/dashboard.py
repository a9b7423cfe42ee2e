#!/usr/bin/env python3
"""Writes gemmd.json, the Grafana dashboard, from panels.yaml. A test compares the two.

build/venv/bin/python deploy/grafana/dashboard.py
"""

from __future__ import annotations

import dataclasses
import json
import pathlib

import yaml

HERE = pathlib.Path(__file__).parent
FILE = HERE / "gemmd.json"

INSTANCE = 'instance=~"$instance"'
WORDS = {
    "CALLS": f'{INSTANCE},method!~"Hold|Queue|Trace"',
    "DEVICE": f'{INSTANCE},device=~"$device"',
    "TENANT": f'{INSTANCE},tenant=~"$tenant"',
    "INSTANCE": INSTANCE,
    "RANGE": "$__rate_interval",
}
# What one chooses at the top, and the query for what there is.
VARIABLES = {
    "instance": "label_values(gemmd_build_info, instance)",
    "device": f"label_values(gemmd_device_state{{{INSTANCE}}}, device)",
    "tenant": f"label_values(gemmd_tenant_sessions{{{INSTANCE}}}, tenant)",
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _spelt_out(query: str) -> str:
    for word, meaning in WORDS.items():
        query = query.replace(f"{{{word}", f"{{{meaning}").replace(f"[{word}]", f"[{meaning}]")
    return query


@dataclasses.dataclass(frozen=True)
class Panel:
    """One entry of panels.yaml."""

    title: str
    unit: str
    kind: str = "timeseries"
    about: str = ""
    stacked: bool = False
    most: float | None = None  # of the axis
    gpu_only: str = ""
    queries: dict[str, str] = dataclasses.field(default_factory=dict)
    quantiles: dict[str, str] | None = None
    p99: dict[str, str] | None = None

    def targets(self) -> list[tuple[str, str]]:
        """Queries, spelt out, and their legends."""
        found = [(_spelt_out(query), legend) for legend, query in self.queries.items()]
        for histogram, quantiles in ((self.quantiles, (0.5, 0.9, 0.99)), (self.p99, (0.99,))):
            if histogram is None:
                continue
            by = histogram.get("by", "")
            group = f"le, {by}" if by else "le"
            buckets = f"{histogram['of']}_bucket{{{histogram['where']}}}"
            for q in quantiles:
                query = f"histogram_quantile({q}, sum by ({group}) (rate({buckets}[RANGE])))"
                found.append((_spelt_out(query), f"{{{{{by}}}}}" if by else f"p{q * 100:g}"))
        return found

    @property
    def size(self) -> tuple[int, int]:
        return (3, 4) if self.kind == "stat" else (8, 8)


def rows() -> list[tuple[str, list[Panel]]]:
    entries = yaml.safe_load((HERE / "panels.yaml").read_text(encoding="utf-8"))
    return [(entry["row"], [Panel(**panel) for panel in entry["panels"]]) for entry in entries]


def _panel_json(panel: Panel, number: int, x: int, y: int) -> dict:
    about = panel.about
    if panel.gpu_only:
        about = f"{about} With GPUs only: {panel.gpu_only}.".strip()
    defaults: dict = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    options: dict = {}
    extra: dict = {}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 20 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
        options = {"legend": {"placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    elif panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
    elif panel.kind == "heatmap":
        options = {"calculate": False, "yAxis": {"unit": panel.unit}, "cellGap": 0}
        extra = {"format": "heatmap"}
    elif panel.kind == "table":
        extra = {"format": "table", "instant": True}
    else:
        raise ValueError(f"{panel.title}: kind {panel.kind} is none that this program knows")
    width, height = panel.size
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
                "refId": chr(ord("A") + i),
                **extra,
            }
            for i, (query, legend) in enumerate(panel.targets())
        ],
    }


def _panels_json() -> list[dict]:
    panels: list[dict] = []
    y = 0
    for title, row in rows():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in row:
            if x + panel.size[0] > 24:
                x, y = 0, y + height
            panels.append(_panel_json(panel, len(panels) + 1, x, y))
            x, height = x + panel.size[0], panel.size[1]
        y += height
    return panels


def _variable_json(name: str, query: str) -> dict:
    return {
        "type": "query",
        "name": name,
        "label": name,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # when the time range changes: instances come and go
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "sort": 1,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def dashboard_json() -> dict:
    datasource = {
        "type": "datasource",
        "name": "datasource",
        "label": "data source",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
    }
    alerts = {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Gemmd.*",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}} {{device}} {{tenant}}",
    }
    return {
        "uid": "gemmd",
        "title": "gemmd",
        "description": "docs/metrics.md says what each metric means.",
        "tags": ["gemmd"],
        "schemaVersion": 37,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [datasource, *(_variable_json(*variable) for variable in VARIABLES.items())]
        },
        "annotations": {"list": [alerts]},
        "panels": _panels_json(),
    }


def text() -> str:
    return json.dumps(dashboard_json(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
