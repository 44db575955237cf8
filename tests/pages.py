"""Pages of report/page.py: the JSON in them, and their texts in a browser."""

import json
import os
import re
import shutil
import subprocess

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium: apt-get install chromium to look at the page in a browser"
)


def data_of(page):
    """The JSON of a page, from its text."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert "<" not in data
    return json.loads(data)


def part_of(section, kind):
    """The only part of a kind, of a `Section`."""
    (part,) = (part for part in section.parts if part["kind"] == kind)
    return part


def cells(section):
    """The rows of a table."""
    return part_of(section, "table")["rows"]


def in_browser(path, address=""):
    """The page's HTML after its script has run, and what the console has."""
    command = [
        *(BROWSER, "--headless", "--disable-gpu", "--no-sandbox", "--enable-logging=stderr"),
        *("--v=0", "--allow-file-access-from-files", "--virtual-time-budget=2000"),
        *(f"--user-data-dir={path.parent}/profile", "--dump-dom", f"file://{path}{address}"),
    ]
    environment = {**os.environ, "HOME": str(path.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
