"""The page of settings says what the configuration is."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_of_settings_are_current():
    spec = importlib.util.spec_from_file_location("settings_page", DOCS / "settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert module.render(page) == page, "run `python docs/settings.py` and commit docs/configuration.md"
