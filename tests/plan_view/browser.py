"""A browser, headless Chromium, where one is installed, and what tests do with a page in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120  # seconds; a busy machine may need them, and what is awaited ends the wait


def started(profile: Path) -> Iterator[Any]:
    """Skips the test where there is none that works."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium, of the test extra, is not installed")
    errors = pytest.importorskip("selenium.common.exceptions")
    http_errors = pytest.importorskip("urllib3.exceptions")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser is installed: the page is tested in Chromium, with chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    except (errors.WebDriverException, http_errors.HTTPError, OSError) as error:
        pytest.skip(f"the browser that is installed does not start here: {error}")
    browser.set_page_load_timeout(PATIENCE)
    browser.set_script_timeout(PATIENCE)
    if not _reads(browser, profile / "read.html", errors.WebDriverException):
        browser.quit()
        pytest.skip("the browser that is installed may not read the files of tests, as one in a sandbox of its own")
    yield browser
    browser.quit()


def _reads(browser: Any, file: Path, error: type[Exception]) -> bool:
    file.write_text("<title>read</title>", encoding="utf-8")
    try:
        browser.get(file.as_uri())
    except error:
        return False
    return browser.title == "read"


class Page:
    """What tests do with a page."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.browser.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def press(self, key: str) -> None:
        """To what has the focus."""
        from selenium.webdriver.common.keys import Keys

        self.browser.switch_to.active_element.send_keys(getattr(Keys, key))

    def wait(self, holds: Callable[[Any], Any]) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser, PATIENCE, poll_frequency=0.05).until(holds)

    def complaints(self) -> list[dict[str, Any]]:
        """Of the browser: what its policy forbade, what failed. They are told once."""
        return [entry for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
