"""What the site changes of a page: files of the repository beside `docs` are named, not linked."""

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the text of a page without its links out of `docs`."""
    return re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", markdown)
