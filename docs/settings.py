"""Write the tables of ``docs/configuration.md`` from the configuration itself: ``python docs/settings.py``."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from desketch.tasks import DpConfig, RunConfig

PAGE = Path(__file__).with_name("configuration.md")


def table(model: type[BaseModel]) -> str:
    """One row per setting: name, default, meaning."""
    rows = [f"| `{name}` | {_default(field)} | {field.description} |" for name, field in model.model_fields.items()]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n"


def render(page: str) -> str:
    """Replace both tables of the page."""
    for name, model in (("run", RunConfig), ("dp", DpConfig)):
        begin, end = f"<!-- settings:{name} -->\n", "<!-- /settings -->"
        before, rest = page.split(begin)
        _, after = rest.split(end, maxsplit=1)
        page = before + begin + table(model) + end + after
    return page


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "-" if value in (None, (), {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
