"""A headless Chromium for tests of pages; tests are skipped, with the reason, where none is there."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SECONDS = 60


def missing() -> str:
    """Why no browser can be driven here; "" where one can."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)} here: apt-get install chromium chromium-driver" if absent else ""


class Browser:
    """A window, what it was asked to load, and what it complained of."""

    def __init__(self, driver: object) -> None:
        self.driver = driver

    def open(self, path: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a page in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        features = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": "", "features": [{"name": name, "value": value} for name, value in features.items()]}
        )
        if self.driver.current_url.startswith("file:"):
            self.run("localStorage.clear()")
        self.show(path)

    def show(self, path: str) -> None:
        """Load a page, which finds what pages before it kept."""
        self.driver.get(Path(path).resolve().as_uri())

    def show_until(self, path: str, script: str) -> None:
        """Load a page until a script says true of it: what another page kept reaches a new renderer a moment later."""
        end = time.monotonic() + SECONDS / 2
        self.show(path)
        while not self.run(script):
            assert time.monotonic() < end, f"never true of {path}: {script}"
            time.sleep(0.1)
            self.show(path)

    def run(self, script: str, *arguments: object) -> object:
        """What a script gives."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> object:
        """The first element that a selector finds."""
        return self.driver.find_element("css selector", selector)

    def keys(self, *keys: str) -> None:
        """Press keys where the focus is."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def shown(self, selector: str) -> int:
        """How many elements that a selector finds are visible."""
        return self.run("return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility()).length", selector)

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call, without what the browser takes out of itself, or of the address."""
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith(("chrome:", "data:"))]  # data: is no load

    def complaints(self) -> list[str]:
        """What stands in the console since the last call: faults of scripts, and what the page's policy forbade."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def opened(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, closed at the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"), log_output=os.devnull))
    driver.set_page_load_timeout(SECONDS)
    driver.set_script_timeout(SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


browser_test = pytest.mark.skipif(bool(missing()), reason=missing())
