"""llama.cpp's web page on the embedded engine, used as a person would, in headless Chromium.

PICTURES=FOLDER keeps what the browser showed.
"""

import os
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from common.engines.llamacpp.build import Engine
from common.known import chain as pair
from common.rig import Rig
from common.serving.process import Server

pytestmark = pytest.mark.browser
WAIT_S = 60.0
SAID = "Hello"
TOKENS = 50  # of the reply, known in advance


def test_the_page_at_the_root_answers_a_chat(
    tiny: Rig, real_engine: Engine, browser: WebDriver, tmp_path: Path
) -> None:
    with Server(tiny, real_engine, tmp_path / "log"):
        browser.get(tiny.url)
        wait = WebDriverWait(browser, WAIT_S)
        box = wait.until(lambda page: page.find_element(By.TAG_NAME, "textarea"))
        box.send_keys(SAID, Keys.ENTER)
        chain = pair.chain_of(tiny.model)
        assert chain is not None
        known = " ".join(chain.text(chain.reply(len(SAID), TOKENS)).split())
        wait.until(lambda page: known in shown(page))
        if folder := os.environ.get("PICTURES"):
            browser.save_screenshot(str(Path(folder) / "chat.png"))


def shown(page: WebDriver) -> str:
    """The text of the page, its white space folded."""
    return " ".join(page.find_element(By.TAG_NAME, "body").text.split())
