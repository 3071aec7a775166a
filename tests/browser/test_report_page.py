"""REPORT.html in headless Chromium: it tells values, goes dark, and fits a phone."""

from pathlib import Path

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.chromium.webdriver import ChromiumDriver
from selenium.webdriver.common.by import By

from common.measure import figures, markdown, page
from common.measure.summary import Interval

pytestmark = pytest.mark.browser
PAYS: Interval = {"ratio": 1.5, "low": 1.25, "high": 1.75, "verdict": "pays"}
SAID = "n=1: 1.500x (95%: 1.250 to 1.750), pays"
WIDTH = 400  # of a phone


def test_a_report_tells_values_goes_dark_and_fits_a_phone(
    browser: ChromiumDriver, tmp_path: Path
) -> None:
    figures.speed_up(tmp_path / "figures/up.svg", [("n=1", PAYS)], [("n=1", 1.4)])
    table = page.table(["column"] * 12, [["a value"] * 12])
    text = f"# Run\n\n{table}\n\n![up](figures/up.svg)\n"
    (tmp_path / "REPORT.html").write_text(markdown.document(text, tmp_path))
    browser.get((tmp_path / "REPORT.html").as_uri())
    assert shown(browser) == []
    *_, point = browser.find_elements(By.CSS_SELECTOR, ".tips path")
    ActionChains(browser).move_to_element(point).perform()
    assert shown(browser) == [SAID]
    light = ground(browser)
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    assert ground(browser) != light
    size = {"width": WIDTH, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wide = browser.find_element(By.CLASS_NAME, "wide")
    assert int(wide.get_property("scrollWidth")) > int(wide.get_property("clientWidth"))  # type: ignore[arg-type]
    assert browser.execute_script("return document.documentElement.scrollWidth") == WIDTH


def shown(browser: ChromiumDriver) -> list[str]:
    return [said.text for said in browser.find_elements(By.CLASS_NAME, "said") if said.text]


def ground(browser: ChromiumDriver) -> list[str]:
    """The colour behind the page, and behind its figure."""
    found = browser.find_elements(By.CSS_SELECTOR, "body, #up-patch_1 path")
    return [
        one.value_of_css_property(name)
        for one, name in zip(found, ("background-color", "fill"), strict=True)
    ]
