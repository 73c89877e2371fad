"""Workloads whose data npm packages hold: on tiny files in the same layout, and on the real ones where they are found."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imsave

from nqm.nets.curvature import Fisher, GaussNewton
from nqm.nets.network import Network
from nqm.nets.workloads import cifar10, fetch, mnist, moby_dick, workload
from nqm.nets.workloads.datasets import DataSet, read_png
from nqm.nets.workloads.fetch import PACKAGES

REAL = {"mnist": mnist.DATA_FILES, "cifar10": cifar10.DATA_FILES, "moby_dick": moby_dick.DATA_FILES}
FIRST = {"mnist": "train-labels-idx1-ubyte", "cifar10": "train_lables.json", "moby_dick": "chapter_1.txt"}


def real(name: str) -> pytest.MarkDecorator:
    source: DataSet = REAL[name]
    there = any((folder / FIRST[name]).is_file() for folder in source.folders())
    return pytest.mark.skipif(not there, reason=f"run python -m nqm.nets.workloads.fetch {name}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NQM_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "named"


def small_cifar(folder: Path, rows: int = 12) -> np.ndarray:
    """Two batches of random images and their labels, as the package lays them out."""
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(256, size=(2, rows, 1024, 3), dtype=np.uint8)
    for k in (0, 1):
        imsave(folder / f"data_batch_{k + 1}.png", pixels[k])
    (folder / "train_lables.json").write_text(json.dumps([i % 10 for i in range(2 * rows)]))
    return pixels.reshape(2 * rows, 32, 32, 3)


def test_cifar_files_are_read_pixel_by_pixel(folder: Path) -> None:
    pixels = small_cifar(folder / "cifar10")
    assert (read_png(folder / "cifar10" / "data_batch_1.png")[..., :3].reshape(12, 32, 32, 3) == pixels[:12]).all()
    x, y = cifar10.data(20)  # over two files
    wanted = torch.tensor(pixels[:20].astype(np.float32)).permute(0, 3, 1, 2)
    torch.testing.assert_close(x, (wanted - wanted.mean()) / wanted.std())
    assert y.tolist() == [i % 10 for i in range(20)]
    (folder / "cifar10" / "data_batch_1.png").write_bytes(b"text")
    with pytest.raises(ValueError, match="not a PNG file"):
        cifar10.data(3)
    imsave(folder / "cifar10" / "data_batch_1.png", np.zeros((4, 7, 3), np.uint8))
    with pytest.raises(ValueError, match="1,024 RGB pixels in a row"):
        cifar10.data(3)


def test_resnet8_runs_and_has_its_weights(folder: Path) -> None:
    small_cifar(folder / "cifar10")
    network = workload("cifar_resnet8").network(1, examples=8)
    # 3x3 convolutions 3-16, 16-16 twice, 16-32, 32-32, 32-64, 64-64, shortcuts 16-32 and 32-64, a linear layer; with biases
    assert network.dim == 448 + 2 * 2320 + 4640 + 9248 + 18496 + 36928 + 544 + 2112 + 650 == 77_706
    assert not any("batch norm" in note for note in network.notes)
    v = torch.randn(network.dim, generator=torch.Generator().manual_seed(0))
    assert float(v @ GaussNewton(network)(v)) > 0


def test_the_text_is_cut_into_sequences(folder: Path) -> None:
    (folder / "moby_dick").mkdir(parents=True)
    text = "CHAPTER 1.\n\n" + "A whale—“so he says”, isn\u2019t it Œ? ϰ. " * 8
    (folder / "moby_dick" / "chapter_1.txt").write_text(text, encoding="utf-8")
    (folder / "moby_dick" / "chapter_2.txt").write_text("The end. " * 40, encoding="utf-8")
    x, y = moby_dick.data(6)
    assert x.shape == y.shape == (6, moby_dick.LENGTH)
    assert x.flatten()[1:].tolist() == y.flatten()[:-1].tolist()  # what comes next
    assert int(x.max()) < len(moby_dick.SYMBOLS) == 96
    read = "".join(moby_dick.SYMBOLS[i] for i in x.flatten())
    assert read.startswith('CHAPTER 1.\n\nA whale-"so he says", isn\'t it OE? ?. A whale')
    joined = "".join(moby_dick.SYMBOLS[i] for i in moby_dick.data(14)[0].flatten())
    assert "\nThe end. The" in joined  # a chapter follows the one before
    with pytest.raises(ValueError, match=r"moby_dick data is missing: no chapter_3.txt .*fetch moby_dick"):
        moby_dick.data(10_000)


def language_model(n: int = 5) -> Network:
    task = workload("moby_transformer")
    torch.manual_seed(0)
    x = torch.randint(96, (n, moby_dick.LENGTH + 1))
    return Network(task.model(), task.loss, (x[:, :-1], x[:, 1:]), dtype=torch.float64)


def test_the_transformer_sees_the_past_alone() -> None:
    network = language_model()
    x, y = network.data
    out = network.output(network.theta, (x, y))
    assert (network.dim, out.shape) == (32_736, (5, 96, 32))
    moved = x.clone()
    moved[:, 20] = (moved[:, 20] + 1) % 96
    change = (network.output(network.theta, (moved, y)) - out).abs().amax((0, 1))
    assert float(change[:20].max()) == 0
    assert float(change[20:].min()) > 1e-4  # by way of attention
    assert any("math kernel" in note for note in network.notes)


def test_forward_mode_passes_through_the_transformer() -> None:
    """v' G v by forward mode, against a difference of outputs and the softmax's own Hessian."""
    network = language_model(2)
    v = torch.randn(network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    e = 1e-5
    ahead, behind = (network.output(network.theta + sign * e * v, network.data) for sign in (1, -1))
    p, u = network.output(network.theta, network.data).softmax(1), (ahead - behind) / (2 * e)
    wanted = ((p * u**2).sum(1) - (p * u).sum(1) ** 2).mean()
    torch.testing.assert_close(v @ GaussNewton(network)(v), wanted, rtol=1e-6, atol=0)


def test_the_fisher_matrix_of_a_sequence_averages_to_gauss_newton() -> None:
    """z-scores of v' F v over draws, with a loss that is a mean over 32 characters; without that factor they are off."""
    network = language_model(4)
    v = torch.randn(2, network.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    draws = torch.stack([(Fisher(network, seed=s)(v) * v).sum(1) for s in range(24)])
    exact, error = (GaussNewton(network)(v) * v).sum(1), draws.std(0) / 24**0.5
    assert ((draws.mean(0) - exact) / error).abs().max() < 4
    assert ((draws.mean(0) / moby_dick.LENGTH - exact) / error).abs().max() > 6


@real("mnist")
def test_mnist_is_the_real_one() -> None:
    digest = hashlib.md5(mnist.DATA_FILES.file("train-images-idx3-ubyte.gz").read_bytes()).hexdigest()
    assert digest == "6bbc9ace898e44ae57da46a324031adb"
    assert mnist.data(5)[1].tolist() == [5, 0, 4, 1, 9]
    assert workload("mnist_cnn").network(60, examples=2000).full_loss() < 1.2


@pytest.mark.slow
@real("cifar10")
def test_cifar_is_the_real_one() -> None:
    pixels = read_png(cifar10.DATA_FILES.file("data_batch_1.png"))
    assert pixels.shape[:2] == (10_000, 1024)
    mean = pixels[..., :3].mean((0, 1)) / 255
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.003)  # of the whole set; this is a fifth
    assert cifar10.data(10)[1].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]


@real("moby_dick")
def test_the_transformer_learns_english() -> None:
    network = workload("moby_transformer").network(60, examples=512)
    assert network.full_loss() < 3.3  # letters by their frequency; log 96 is 4.6
    x, _ = moby_dick.data(3)
    assert "Call me Ishmael." in "".join(moby_dick.SYMBOLS[i] for i in x.flatten())
    assert len(moby_dick.data(10**9)[0]) > 36_000


def test_mnist_does_not_take_fashion_for_it(folder: Path) -> None:
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(b"of another set")
    with pytest.raises(ValueError, match=r"mnist data is missing.*fetch mnist.*NQM_DATA"):
        mnist.data(1)
    (folder / "mnist" / "data").mkdir(parents=True)
    (folder / "mnist" / "data" / "train-images-idx3-ubyte").write_bytes(b"as npm lays it out")
    assert mnist.DATA_FILES.file("train-images-idx3-ubyte.gz").parent.name == "data"


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("package/data/chapter_9.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return path


def test_only_data_files_are_taken_out_of_a_package(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "package/data/chapter_1.txt": b"Call me",
        "package/data/chapter_/../../../../chapter_2.txt": b"outside",
        "package/lib/index.js": b"code",
        "../data/chapter_3.txt": b"elsewhere",
    }
    made = archive(tmp_path / "a.tgz", files)
    with pytest.raises(ValueError, match="has changed"):
        fetch.fetch("moby_dick", lambda package, work: made)
    right = replace(PACKAGES["moby_dick"], sha256=hashlib.sha256(made.read_bytes()).hexdigest())
    monkeypatch.setitem(PACKAGES, "moby_dick", right)
    found = fetch.fetch("moby_dick", lambda package, work: made)
    assert found == folder / "moby_dick"
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"a.tgz", "chapter_1.txt", "chapter_2.txt"}
    assert {p.name for p in found.iterdir()} == {"chapter_1.txt", "chapter_2.txt"}


def test_fetching_fails_with_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert fetch.main(["mnist"]) == 1
    assert "npm is not installed" in capsys.readouterr().err
    assert fetch.main(["imagenet"]) == 1
    assert "there is no data set 'imagenet'; there are mnist, cifar10, moby_dick" in capsys.readouterr().err
    assert fetch.main([]) == 2
    capsys.readouterr()
    assert fetch.main(["--help"]) == 0
    assert "there are mnist, cifar10, moby_dick" in capsys.readouterr().out
