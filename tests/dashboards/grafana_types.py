"""A dashboard's JSON held against the types of Grafana's own SDK (grafana-foundation-sdk).

The types read what they know and write it again; what they do not know is lost on the way. So what
is the same afterwards is spelt as Grafana spells it, in the place where Grafana looks for it.
"""

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()


def compare(ours, theirs, path):
    if isinstance(ours, dict):
        if not isinstance(theirs, dict):
            yield f"{path}: became {theirs!r}"
            return
        for key, value in ours.items():
            if key not in theirs:
                if value is not None:
                    yield f"{path}.{key}: unknown to Grafana's types"
            else:
                yield from compare(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield f"{path}: became {theirs!r}"
            return
        for index, value in enumerate(ours):
            yield from compare(value, theirs[index], f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


def differences(dashboard):
    """What of a dashboard's JSON is lost or changed; empty when nothing is."""
    known = Dashboard.from_json(dashboard)
    return list(compare(dashboard, json.loads(JSONEncoder().encode(known)), "dashboard"))
