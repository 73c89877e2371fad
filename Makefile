# make demo: a virtual environment, the core, a tuned batch-size study with its picture.
# make test: what the tests need, and the tests; make fast: those that take no more than a few seconds each.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Another library's curvature products, for the tests to compare ours with. A part of it asks for torchvision, which it uses in
# examples alone and which must match torch to the release: so these without what they ask for, and what they use by name.
ORACLE := curvlinops-for-pytorch backpack-for-pytorch einconv unfoldNd
ORACLE_USES := einops linear_operator opt-einsum tqdm

.PHONY: demo test fast check bench planted docs sample clean

demo: $(VENV)/core
	$(BIN)/nqm demo --plot out/demo.png

test: $(VENV)/dev
	NQM_REQUIRE_TORCH=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

fast: $(VENV)/dev
	NQM_REQUIRE_TORCH=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/core
	$(BIN)/python -m benchmarks

planted: $(VENV)/dev
	$(BIN)/python -m benchmarks.planted run

docs: $(VENV)/core
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/notebooks.py

sample: $(VENV)/dev  # the fit that the page opens as its sample
	$(BIN)/nqm fit digits --seed 0 --out nqm/web/static/examples/digits.json

$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("nqm needs Python 3.11 or later, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/dev: $(VENV)/core
	$(PIP) --editable '.[dev,nets,cluster,web]' $(ORACLE_USES)
	$(PIP) --no-deps $(ORACLE)
	@touch $@

clean:
	rm -rf $(VENV) out build dist .pytest_cache .ruff_cache
