"""A headless Chromium for tests of the page, and what a test asks it.

Debian's chromium and chromium-driver (config/test.sh installs them), driven by Selenium. Without
them a test is skipped with the reason; with CI=true in the environment it fails. No test sleeps:
every wait is for a condition and has a deadline.
"""

import os
import shutil
import signal

from parkade_process import DEADLINE_S, ServerTest, wait_until

try:
    from selenium import webdriver
    from selenium.common.exceptions import (NoSuchElementException, StaleElementReferenceException,
                                            TimeoutException)
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    webdriver = None

ROWS = """
return [...document.querySelectorAll('#rows tr')].map(row => {
  const found = {id: row.dataset.id, name: row.querySelector('.name').textContent,
                 branch: row.querySelector('.branch').textContent, next: false, pinned: false};
  for (const pill of row.querySelectorAll('.pill')) {
    if (pill.textContent === 'pinned') found.pinned = !pill.hidden;
    if (pill.textContent === 'goes next') found.next = !pill.hidden;
  }
  for (const cell of row.querySelectorAll('td[data-key]')) {
    found[cell.dataset.key] = cell.textContent;
  }
  return found;
});"""
FACTS = """
return Object.fromEntries([...document.querySelectorAll('#last-facts dd')]
    .map(fact => [fact.dataset.fact, fact.textContent]));"""


def missing():
    """Why there is no browser; empty where there is one."""
    if webdriver is None:
        return "the Python package selenium is not installed (config/test.sh does it)"
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(program) is None:
            return f"{program} is missing (apt-get install {package})"
    return ""


def processes_with(text):
    """Ids of the processes whose command line holds `text`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if text.encode() in file.read():
                    found.append(int(entry))
        except OSError:  # it has ended
            pass
    return found


class BrowserTest(ServerTest):
    def setUp(self):
        super().setUp()
        why = missing()
        if why and os.environ.get("CI") == "true":
            self.fail(why)
        if why:
            self.skipTest(why)
        self.profile = os.path.join(self.folder, "profile")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                         "--disable-gpu", "--no-first-run", "--disable-background-networking",
                         "--disable-component-update", "--disable-extensions", "--mute-audio",
                         "--window-size=1280,1000", f"--user-data-dir={self.profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.addCleanup(self.end_browser)

    def end_browser(self):
        """All processes of the browser end with the test."""
        self.driver.quit()
        try:
            wait_until(lambda: not processes_with(self.profile), "the browser's end", 10)
        finally:
            for process in processes_with(self.profile):
                os.kill(process, signal.SIGKILL)

    # ---- waiting and looking ----

    def wait(self, condition, what):
        """Until `condition()` is true; returns its value."""
        waiting = WebDriverWait(self.driver, DEADLINE_S, 0.05, ignored_exceptions=(
            NoSuchElementException, StaleElementReferenceException))
        try:
            return waiting.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"waited in vain for {what}; the page:\n{self.text()}") from None

    def wait_equal(self, get, expected, what):
        """Until `get()` is `expected`; says what it was instead."""
        seen = []

        def equal():
            seen[:] = [get()]
            return seen[0] == expected
        try:
            self.wait(equal, what)
        except AssertionError:
            self.assertEqual(seen[0], expected, what)
            raise

    def script(self, source, *arguments):
        return self.driver.execute_script(source, *arguments)

    def element(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def shown(self, selector):
        """The text of what is seen; None where nothing is."""
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found[0].text if found and found[0].is_displayed() else None

    def text(self):
        return self.element("body").text

    def open(self, port, prefix=""):
        self.driver.get(f"http://127.0.0.1:{port}{prefix}/conversations/ui")

    def state(self):
        return self.element("#state").text

    def wait_state(self, words):
        self.wait_equal(self.state, words, "the page's state")

    def rows(self):
        return self.script(ROWS)

    def ids(self):
        return [row["id"] for row in self.rows()]

    def facts(self):
        """What the page says about the last lookup, by label."""
        return self.script(FACTS)

    def press(self, chat, button):
        self.element(f"tr[data-id='{chat}'] .{button}").click()

    def sort_by(self, key):
        self.element(f"#heads [data-key={key}] button").click()

    def assert_quiet(self, *allowed):
        """Nothing in the browser's log, violations of the page's policy among it, but `allowed`."""
        entries = [entry["message"] for entry in self.driver.get_log("browser")]
        # Said where a click came before the page was laid out; the dialog takes the focus anyway.
        harmless = (*allowed, "Autofocus processing was blocked")
        self.assertEqual([e for e in entries if not any(words in e for words in harmless)], [])
