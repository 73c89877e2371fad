"""Workloads on the real data, and what is said when data is missing."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest
import torch

from nqm.nets.workloads import WORKLOADS, workload
from nqm.nets.workloads.datasets import DataSet, read_idx
from nqm.nets.workloads.fashion import DATA_FILES

FASHION = pytest.mark.skipif(
    not Path(DATA_FILES.package).is_dir(),
    reason="Debian's dataset-fashion-mnist is not installed; continuous integration has it",
)


def test_digits_learn() -> None:
    found = workload("digits")
    start, later = found.network(0), found.network(60)
    assert (start.examples, start.dim, later.step) == (1797, 2410, 60)
    assert 2.2 < start.full_loss() < 2.6
    assert later.full_loss() < 0.9
    torch.testing.assert_close(found.network(60).theta, later.theta)
    assert not torch.equal(found.network(0, seed=1).theta, start.theta)


@FASHION
@pytest.mark.parametrize("name", ["fashion_mlp", "fashion_cnn"])
def test_fashion_learns(name: str) -> None:
    network = workload(name).network(60, examples=2000)
    assert network.dim == {"fashion_mlp": 52650, "fashion_cnn": 9098}[name]
    assert network.full_loss() < 1.6


@FASHION
def test_the_fashion_files_are_the_real_ones() -> None:
    for name, digest in DATA_FILES.sha256.items():
        assert hashlib.sha256(gzip.decompress(DATA_FILES.file(name).read_bytes())).hexdigest() == digest


def test_missing_data_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NQM_DATA", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = DataSet("things", "ask for it")
    with pytest.raises(ValueError, match=r"things data is missing: no a\.gz in .*here.*ask for it"):
        source.file("a.gz")
    (tmp_path / "here" / "things").mkdir(parents=True)
    (tmp_path / "here" / "things" / "a").write_bytes(b"x")
    assert source.file("a.gz").name == "a"


def test_downloads_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NQM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.gz").write_bytes(gzip.compress(b"right"))
    sums = {"a.gz": hashlib.sha256(b"right").hexdigest()}
    source = DataSet("things", "ask", home=f"file://{home}/", sha256=sums)
    assert source.file("a.gz").is_relative_to(tmp_path / "cache")
    (tmp_path / "cache" / "nqm" / "things" / "a.gz").unlink()
    (home / "a.gz").write_bytes(gzip.compress(b"wrong"))
    with pytest.raises(ValueError, match="has changed"):
        source.file("a.gz")
    (home / "a.gz").unlink()
    with pytest.raises(ValueError, match="does not answer"):
        source.file("a.gz")


def test_idx_files_are_parsed_with_care(tmp_path: Path) -> None:
    head = b"\x00\x00\x08\x02" + (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
    (tmp_path / "a").write_bytes(head + bytes(range(6)))
    assert read_idx(tmp_path / "a").tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "b").write_bytes(head + bytes(range(4)))
    with pytest.raises(ValueError, match="ends early"):
        read_idx(tmp_path / "b")
    (tmp_path / "c").write_bytes(b"text")
    with pytest.raises(ValueError, match="not an IDX file"):
        read_idx(tmp_path / "c")


def test_names_are_known() -> None:
    assert set(WORKLOADS) >= {"digits", "fashion_mlp", "fashion_cnn"}
    for name in WORKLOADS:
        assert workload(name).name == name
    with pytest.raises(ValueError, match="there is no workload 'mnist'"):
        workload("mnist")
