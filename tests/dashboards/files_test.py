"""The dashboards' files, without a server: what Grafana's own types and promtool say of them, and
that they name only what exists and leave nothing out."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DASHBOARDS = os.path.join(ROOT, "dashboards")
CONFIG = os.path.join(ROOT, "config")
sys.path.insert(0, DASHBOARDS)

import make_dashboards  # noqa: E402  (after the path)
import panels  # noqa: E402
import grafana_types  # noqa: E402

FILES = [dashboard.file for dashboard in panels.DASHBOARDS]
# What promtool calls series of a histogram.
SUFFIXES = r"(_bucket|_sum|_count)$"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def dashboard(file):
    return json.loads(read("dashboards", file))


def catalogue():
    """{metric: (type, labels)} of the first table of dashboards/README.md."""
    found = {}
    for line in read("dashboards", "README.md").splitlines():
        if line.startswith("| `parkade_"):
            name, kind, labels = (cell.strip() for cell in line.strip("|").split("|")[:3])
            found[name.strip("`")] = (kind, set(re.findall(r"`(\w+)`", labels)))
    return found


def expressions():
    """(where, expression) of every panel and alert."""
    for file in FILES:
        for panel in dashboard(file)["panels"]:
            for target in panel.get("targets", []):
                yield f"{file}: {panel['title']}", target["expr"]
    for group in yaml.safe_load(read("config", "alerts.yml"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


class PanelTest(unittest.TestCase):
    def test_files_are_what_the_tables_say(self):
        for entry in panels.DASHBOARDS:
            self.assertEqual(read("dashboards", entry.file), make_dashboards.text_of(entry),
                             f"{entry.file}: run dashboards/make_dashboards.py")

    def test_every_panel_can_be_read(self):
        for file in FILES:
            for panel in dashboard(file)["panels"]:
                if panel["type"] == "row":
                    continue
                with self.subTest(file=file, panel=panel["title"]):
                    self.assertGreater(len(panel["description"].split()), 2)
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
                    for target in panel["targets"]:
                        self.assertTrue(target["legendFormat"])

    def test_titles_and_numbers_are_unique(self):
        titles = [panel["title"] for file in FILES for panel in dashboard(file)["panels"]
                  if panel["type"] != "row"]
        self.assertEqual(len(titles), len(set(titles)))
        for file in FILES:
            numbers = [panel["id"] for panel in dashboard(file)["panels"]]
            self.assertEqual(len(numbers), len(set(numbers)))
        self.assertEqual(len({dashboard(file)["uid"] for file in FILES}), len(FILES))

    def test_panels_do_not_overlap_and_fill_their_lines(self):
        for file in FILES:
            taken = {}
            for panel in dashboard(file)["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
                for x in range(at["x"], at["x"] + at["w"]):
                    for y in range(at["y"], at["y"] + at["h"]):
                        self.assertNotIn((x, y), taken, panel["title"])
                        taken[x, y] = panel["title"]
            bottom = max(y for _, y in taken) + 1
            self.assertEqual(len(taken), 24 * bottom, f"{file} has holes")

    def test_every_expression_asks_for_the_chosen_servers(self):
        for where, expr in expressions():
            if ".json" not in where:
                continue
            for name, labels in re.findall(r"\b(parkade_\w+)(\{[^}]*\})?", expr):
                self.assertIn('instance=~"$instance"', labels, f"{where}: {name}")

    def test_counters_are_only_seen_through_their_growth(self):
        known = catalogue()
        for where, expr in expressions():
            for found in re.finditer(r"(\w+)?\(?\b(parkade_\w+)", expr):
                around, name = found[1], re.sub(SUFFIXES, "", found[2])
                if known[name][0] == "gauge":
                    self.assertNotIn(around, ("rate", "increase"), f"{where}: {name}")
                elif where != "ParkadeCorrupt":
                    self.assertIn(around, ("rate", "increase"), f"{where}: {name}")


class CatalogueTest(unittest.TestCase):
    def test_nothing_else_is_named(self):
        known = catalogue()
        for where, expr in expressions():
            names = re.findall(r"\bparkade_\w+", expr)
            # Prometheus makes `up` itself, for every target.
            self.assertTrue(names or expr.startswith(("vector(", 'up{job="parkade"}')), where)
            for name in names:
                bare = re.sub(SUFFIXES, "", name)
                self.assertIn(bare, known, where)
                self.assertEqual(bare != name, known[bare][0] == "histogram", f"{where}: {name}")

    def test_labels_exist(self):
        known = catalogue()
        always = {"instance", "job", "le"}
        for where, expr in expressions():
            for name, labels in re.findall(r"\b(parkade_\w+)\{([^}]*)\}", expr):
                bare = re.sub(SUFFIXES, "", name)
                for label in re.findall(r"(\w+)\s*[=!]", labels):
                    self.assertIn(label, known[bare][1] | always, f"{where}: {name}")

    def test_values_of_labels_exist(self):
        """A reason that is misspelt would select nothing and look like 0."""
        text = read("dashboards", "README.md")
        for where, expr in expressions():
            for value in re.findall(r'\b(?:reason|tier|kind|outcome)!?="(\w+)"', expr):
                self.assertIn(f"`{value}`", text, where)

    def test_nothing_is_left_out(self):
        """Every metric of the catalogue is on a dashboard, the build's through the variables."""
        shown = {re.sub(SUFFIXES, "", name) for where, expr in expressions()
                 if ".json" in where for name in re.findall(r"\bparkade_\w+", expr)}
        self.assertEqual(shown, set(catalogue()) - {"parkade_build_info"})
        for file in FILES:
            self.assertIn("parkade_build_info", json.dumps(dashboard(file)["templating"]))


class GrafanaTest(unittest.TestCase):
    """Grafana's own types: what is read from the JSON and written again is the same JSON."""

    def test_dashboards(self):
        for file in FILES:
            with self.subTest(file=file):
                self.assertEqual(grafana_types.differences(dashboard(file)), [])

    def test_a_mistake_is_seen(self):
        wrong = dashboard(FILES[0])
        wrong["panels"][1]["options"]["colourMode"] = "value"
        wrong["panels"][1]["targets"][0]["legendFromat"] = "x"
        wrong["templating"]["list"][1]["includeALL"] = True
        found = " ".join(grafana_types.differences(wrong))
        for name in ("colourMode", "legendFromat", "includeALL"):
            self.assertIn(name, found)

    def test_provisioning(self):
        folder = ("dashboards", "provisioning")
        sources = yaml.safe_load(read(*folder, "datasources", "parkade.yml"))
        (source,) = sources["datasources"]
        self.assertEqual((sources["apiVersion"], source["type"]), (1, "prometheus"))
        scrape = yaml.safe_load(read("config", "prometheus.yml"))["global"]["scrape_interval"]
        self.assertEqual(source["jsonData"]["timeInterval"], scrape)
        (provider,) = yaml.safe_load(read(*folder, "dashboards", "parkade.yml"))["providers"]
        self.assertEqual(provider["type"], "file")
        compose = yaml.safe_load(read("config", "compose", "compose.yml"))
        grafana = compose["services"]["grafana"]
        self.assertIn(f"../../dashboards:{provider['options']['path']}:ro", grafana["volumes"])
        self.assertIn(source["url"].strip("$"), grafana["environment"])


class ComposeTest(unittest.TestCase):
    FOLDER = os.path.join(CONFIG, "compose")

    def test_files_that_are_mounted_exist(self):
        services = yaml.safe_load(read("config", "compose", "compose.yml"))["services"]
        self.assertEqual(set(services), {"server", "prometheus", "grafana"})
        for service in services.values():
            for volume in service["volumes"]:
                path = volume.split(":")[0]
                if path.startswith("."):
                    self.assertTrue(os.path.exists(os.path.join(self.FOLDER, path)), path)
        build = services["server"]["build"]
        self.assertTrue(os.path.exists(os.path.join(ROOT, build["dockerfile"])))

    def test_files_that_are_copied_exist(self):
        lines = read("config", "compose", "Dockerfile").splitlines()
        for line in lines:
            if line.startswith("COPY") and "--from" not in line:
                for path in line.split()[1:-1]:
                    self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)

    def test_scrapes_as_the_other_configuration_does(self):
        ours = yaml.safe_load(read("config", "prometheus.yml"))
        theirs = yaml.safe_load(read("config", "compose", "prometheus.yml"))
        for config in (ours, theirs):
            for job in config["scrape_configs"]:
                job.pop("static_configs")
        self.assertEqual(ours, theirs)


class PromtoolTest(unittest.TestCase):
    def assert_passes(self, *command):
        done = run("promtool", *command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_rules(self):
        said = self.assert_passes("check", "rules", "--lint-fatal",
                                  os.path.join(CONFIG, "alerts.yml"))
        self.assertIn("7 rules found", said)

    def test_rules_fire_and_do_not(self):
        self.assert_passes("test", "rules", os.path.join(ROOT, "tests", "dashboards",
                                                         "alerts.yml"))

    def test_every_alert_is_tested(self):
        rules = yaml.safe_load(read("config", "alerts.yml"))["groups"][0]["rules"]
        tested = read("tests", "dashboards", "alerts.yml")
        for rule in rules:
            self.assertIn(f'alertname="{rule["alert"]}"', tested)
            self.assertLessEqual({"summary", "description", "runbook"}, set(rule["annotations"]))

    def test_configuration(self):
        self.assert_passes("check", "config", "--lint-fatal",
                           os.path.join(CONFIG, "prometheus.yml"))

    def test_configuration_with_a_key(self):
        with tempfile.TemporaryDirectory(prefix="parkade-") as folder:
            text = read("config", "prometheus.yml")
            self.assertEqual(text.count("#authorization:"), 1)
            text = text.replace("#authorization:", "authorization:")
            text = text.replace("#  credentials_file:", "  credentials_file:")
            for name, content in (("prometheus.yml", text), ("parkade.key", "key\n"),
                                  ("alerts.yml", read("config", "alerts.yml"))):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(content)
            self.assert_passes("check", "config", os.path.join(folder, "prometheus.yml"))

    def test_configuration_of_the_containers(self):
        with tempfile.TemporaryDirectory(prefix="parkade-") as folder:
            for path in (("compose", "prometheus.yml"), ("alerts.yml",)):
                with open(os.path.join(folder, path[-1]), "w", encoding="utf-8") as file:
                    file.write(read("config", *path))
            self.assert_passes("check", "config", os.path.join(folder, "prometheus.yml"))


if __name__ == "__main__":
    unittest.main()
