"""Writes docs/reference/data-model.md from the table of keys, or with --check tells whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from fairqueue._engine import keys

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "data-model.md"


def page() -> str:
    """The page's text."""
    intro = (keys.__doc__ or "").split("Composite names")[0].strip()
    rows = [
        f"| `{kind}{':<' + spec.of + '>' if spec.of else ''}` | {spec.type} | {spec.holds} | {spec.writers} |"
        for kind, spec in keys.KEYS.items()
    ]
    remains = ", ".join(f"`{kind}`" for kind in sorted(keys.REMAINS))
    return "\n".join(
        [
            "# Data model",
            "",
            "<!-- written by tools/data_model.py -->",
            "",
            intro.replace("``", "`"),
            "",
            "`US` is the unit separator (0x1f). A *lane* is `tenant US queue US pool [US limit US group id]...`, a *group* is",
            "`limit US group id`, a *scope* is where turns are taken.",
            "",
            "| key | type | holds | written by |",
            "|---|---|---|---|",
            *rows,
            "",
            f"When all work is done only these are left: {remains}. Settings and counters stay until reset, calls and locks",
            "expire, the others are bounded by the number of pools and workers.",
            "",
        ]
    )


def main() -> int:
    """0 when the page is (now) what the table says."""
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
