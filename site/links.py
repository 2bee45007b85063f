"""Links of the documentation that leave docs/ lead to the repository, if the file is there."""

import logging
import posixpath
import re
from pathlib import Path

log = logging.getLogger("mkdocs.hooks.links")
outside = re.compile(r"\]\(((?:\.\./)+[^)#\s]*)")


def on_page_markdown(markdown, page, config, **_):
    root = Path(config["docs_dir"]).parent

    def resolve(match):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match.group(1)))
        if path.startswith("docs/"):
            return match.group(0)
        if not (root / path).exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, path)
        return f"]({config['repo_url']}/blob/main/{path}"

    return outside.sub(resolve, markdown)
