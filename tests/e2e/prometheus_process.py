"""A Prometheus that watches servers under test, and the dashboards' panels as it answers them.

Debian's package prometheus, started on a port that the system chooses, with a folder of its own.
Standard library only.
"""

import http.server
import json
import math
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from parkade_process import DEADLINE_S, ROOT, wait_until

DASHBOARDS = os.path.join(ROOT, "dashboards")
ALERTS = os.path.join(ROOT, "config", "alerts.yml")
SCRAPE_S = 1
# What Grafana puts for $__rate_interval: four scrapes.
RATE_S = 4 * SCRAPE_S


class Door:
    """One address for whatever server stands behind it now, as a service keeps its port over a
    restart. Only /metrics; 503 while there is none."""

    def __init__(self):
        self.server = None
        door = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = door.fetch(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass  # swallow: Prometheus has given up this scrape and says so itself

            def log_message(self, *_):
                pass

        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.listener.server_address[1]}"
        self.thread = threading.Thread(target=self.listener.serve_forever, daemon=True)
        self.thread.start()

    def fetch(self, path, authorization):
        server = self.server
        if server is None or server.port is None:
            return 503, b"no server\n"
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}")
        if authorization:
            request.add_header("Authorization", authorization)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 503, b"no server\n"

    def close(self):
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join()


def configuration(addresses, more=""):
    """As config/prometheus.yml, but quicker. `more`: lines of the scrape configuration."""
    targets = ", ".join(addresses)
    return (f"global:\n  scrape_interval: {SCRAPE_S}s\n  scrape_timeout: {SCRAPE_S}s\n"
            f"  evaluation_interval: {SCRAPE_S}s\nrule_files:\n  - {ALERTS}\n"
            f"scrape_configs:\n  - job_name: parkade\n{more}"
            f"    static_configs:\n      - targets: [{targets}]\n")


class Prometheus:
    def __init__(self, folder, config):
        self.folder = os.path.join(folder, "prometheus")
        os.makedirs(self.folder)
        path = os.path.join(self.folder, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        self.log_path = os.path.join(folder, "prometheus.log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={path}", "--web.listen-address=127.0.0.1:0",
                 f"--storage.tsdb.path={self.folder}/data", "--log.level=info"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.address = wait_until(self.find_address, "Prometheus to listen")
        wait_until(self.is_ready, "Prometheus to be ready")

    def find_address(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            log = file.read()
        if self.process.poll() is not None:
            raise AssertionError(f"prometheus ended (status {self.process.returncode}):\n{log}")
        found = re.search(r'msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)', log)
        return found and found[1]

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=10):
                return True
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()

    # ---- questions ----

    def api(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error
        if answer["status"] != "success" or answer.get("warnings"):
            raise AssertionError(f"{path} {parameters}: {answer}")
        return answer["data"]

    def instant(self, expr, at=None):
        """[(labels, value)] of a query at one time; now if none is given."""
        more = {} if at is None else {"time": at}
        data = self.api("query", query=expr, **more)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def over_time(self, expr, begin, end, step):
        """[(labels, [(time, value)])]."""
        data = self.api("query_range", query=expr, start=begin, end=end, step=step)
        return [(series["metric"], [(at, float(value)) for at, value in series["values"]])
                for series in data["result"]]

    def value(self, expr):
        """Of a query that has one value; None if there is none."""
        found = self.instant(expr)
        if len(found) > 1:
            raise AssertionError(f"{expr}: {found}")
        return found[0][1] if found else None


class Panels:
    """The panels of a dashboard's JSON file, asked as Grafana asks."""

    def __init__(self, file):
        with open(os.path.join(DASHBOARDS, file), encoding="utf-8") as text:
            self.json = json.load(text)
        self.panels = [panel for panel in self.json["panels"] if panel["type"] != "row"]

    @staticmethod
    def written_out(expr, range_s, instance=".*", rate_s=RATE_S):
        """The expression with Grafana's variables replaced."""
        for name, value in (("$__rate_interval", f"{rate_s}s"),
                            ("$__range", f"{math.ceil(range_s)}s"), ("$instance", instance),
                            ("$model", ".*")):
            expr = expr.replace(name, value)
        if "$" in expr:
            raise AssertionError(f"an unknown variable: {expr}")
        return expr

    @staticmethod
    def legend(template, labels):
        """The name of a series; a label that it lacks is an error."""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: labels[found[1]], template)

    def ask(self, prometheus, panel, begin, end, step=1, **variables):
        """{legend: [(time, value)]}; what is asked for one time has one pair."""
        found = {}
        for target in panel["targets"]:
            expr = self.written_out(target["expr"], end - begin, **variables)
            if target["instant"]:
                series = [(labels, [(end, value)])
                          for labels, value in prometheus.instant(expr, end)]
            else:
                series = prometheus.over_time(expr, begin, end, step)
            for labels, values in series:
                name = self.legend(target["legendFormat"], labels)
                if name in found:
                    raise AssertionError(f"{panel['title']}: two series are named '{name}'")
                found[name] = values
        return found


def now():
    return time.time()
