"""Run the notebooks among the examples, and store them with their outputs: ``python docs/notebooks.py``.

Jupyter is not needed: a cell is executed, and what the value that ends it says of itself is what a notebook shows of it.
"""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def run_cell(source: str, space: dict[str, Any]) -> Any:
    """Execute a cell as a notebook does, and return the value of the expression that ends it."""
    *body, last = ast.parse(source).body
    ends = isinstance(last, ast.Expr)
    exec(compile(ast.Module(body if ends else [*body, last], []), "cell", "exec", dont_inherit=True), space)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), space) if isinstance(last, ast.Expr) else None


def shown(value: Any) -> dict[str, Any]:
    """What a notebook stores of a value, by its type: text, and HTML or a picture if the value has one."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_") and (html := value._repr_html_()):
        data["text/html"] = html.splitlines(keepends=True)
    if hasattr(value, "_repr_png_") and (picture := value._repr_png_()):
        data["image/png"] = base64.b64encode(picture).decode()
        data["text/plain"] = ["<Figure>"]  # The line of a figure has its size in pixels, which fonts may change.
    return data


def executed(path: Path) -> dict[str, Any]:
    """A notebook with the outputs of all of its cells."""
    book, space, count = json.loads(path.read_text(encoding="utf-8")), {"__name__": "__main__"}, 0
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            value = run_cell("".join(cell["source"]), space)
            result = {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": shown(value)}
            cell.update(execution_count=count, outputs=[] if value is None else [result])
    return book


def stored(book: dict[str, Any]) -> str:
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        notebook.write_text(stored(executed(notebook)), encoding="utf-8")
        print(f"wrote {notebook}")
