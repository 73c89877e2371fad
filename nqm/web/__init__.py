"""The explorer: a page on this machine, and the JSON endpoints behind it. Needs the extra ``web``; see docs/web.md."""
