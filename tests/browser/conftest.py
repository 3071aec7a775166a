"""A real browser without a window."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.remote.webdriver import WebDriver

# Chromium's own calls home are refused on a machine without a network, and cost time.
QUIET = (
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[WebDriver]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.fail("install a browser: apt install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1100,800"):
        options.add_argument(flag)
    for flag in (*QUIET, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()
