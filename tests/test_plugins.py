"""What installed packages add to catalogues and registries, and what is said of those that are broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainsim.documents.catalogue import OWN as NOT_TAKEN_OVER
from trainsim.documents.catalogue import Catalogue
from trainsim.errors import TrainsimError
from trainsim.frameworks import FRAMEWORKS
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.collective_constants import COLLECTIVE_CONSTANTS
from trainsim.hardware.gpu import GPUS, load_gpu
from trainsim.hardware.kernel_constants import KERNELS
from trainsim.hardware.topology import TOPOLOGIES
from trainsim.models.known import FAMILIES, MODELS
from trainsim.models.weight_types import WEIGHT_TYPES
from trainsim.optimizers import OPTIMIZERS
from trainsim.plugins import KINDS, BrokenPlugin
from trainsim.scenario.loading import SCENARIOS
from trainsim.scenario.scenario import Scenario

EVERY = (
    MODELS,
    FAMILIES,
    GPUS,
    KERNELS,
    TOPOLOGIES,
    COLLECTIVE_CONSTANTS,
    FRAMEWORKS,
    OPTIMIZERS,
    SCENARIOS,
    WEIGHT_TYPES,
)
CATALOGUES = {catalogue.key: catalogue for catalogue in EVERY}
OWN = {catalogue.key: catalogue.names() for catalogue in EVERY}
GPU = "base: h100-sxm5-80gb\ndescription: our H100\nsource: ours\nmemory: 95GiB\n"
SCHEDULE = '''
"""Passes of a package of others."""
from trainsim.schedules import schedules

schedules.register("acme-order")(schedules["gpipe"])
'''


class Package:
    """A distribution that is not installed by anything: a folder on the path with its metadata and its files."""

    def __init__(self, folder: Path, name: str = "acme"):
        self.folder, self.name = folder, name
        folder.mkdir()
        (folder / f"{name}_data").mkdir()
        (folder / f"{name}_data" / "__init__.py").write_text("")
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")

    def add(self, group: str, name: str, value: str) -> None:
        """An entry point."""
        file = self.folder / f"{self.name}-1.0.dist-info" / "entry_points.txt"
        file.write_text((file.read_text() if file.exists() else "") + f"[{group}]\n{name} = {value}\n")

    def data(self, kind: str, files: dict[str, str]) -> None:
        """A folder of data files that is added to a catalogue."""
        folder = self.folder / f"{self.name}_data" / kind
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.yaml").write_text(text)
        self.add("trainsim.catalogues", kind, f"{self.name}_data.{kind}")


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    monkeypatch.syspath_prepend(str(tmp_path / "acme"))
    before = set(sys.modules)
    yield Package(tmp_path / "acme")
    for name in set(sys.modules) - before:
        if name.startswith("acme"):
            del sys.modules[name]


def run(package: Package, *words: str) -> subprocess.CompletedProcess[str]:
    """``trainsim`` in a process of its own that finds the package."""
    path = os.pathsep.join([str(package.folder), str(Path(__file__).parents[1])])
    command = [sys.executable, "-m", "trainsim", *words]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


def test_every_catalogue_takes_files_of_packages() -> None:
    assert set(CATALOGUES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_a_package_is_found_by_its_name(kind: str, acme: Package) -> None:
    catalogue, own = CATALOGUES[kind], OWN[kind]
    acme.data(kind, {"acme-thing": f"base: {own[0]}\ndescription: of a package\n"})
    assert set(catalogue.names()) == {*own, "acme-thing"}
    assert list(catalogue.names()) == sorted(catalogue.names())
    assert catalogue.descriptions()["acme-thing"] == "of a package"
    assert catalogue.find("acme-thing").data.keys() >= catalogue.find(own[0]).data.keys() - NOT_TAKEN_OVER
    assert catalogue.find({"base": "acme-thing", "name": "mine"}).name == "mine"
    assert catalogue.written("acme-thing") == "acme-thing"
    assert catalogue.path("acme-thing").parent == acme.folder / "acme_data" / kind


def test_a_machine_of_a_package_with_a_gpu_of_the_same(acme: Package) -> None:
    acme.data("gpus", {"acme-h100": GPU})
    acme.data("topologies", {"acme_box": "base: dgx_h100\nsource: ours\ngpu: acme-h100\n"})
    assert load_topology("acme_box").gpu == load_gpu("acme-h100")
    document = {"model": "gpt2", "cluster": {"topology": "acme_box"}, "training": {"global_batch": 8}}
    assert Scenario.from_dict(document).resolve().cluster.gpu.memory == 95 * 2**30
    out = run(acme, "list", "gpus")
    assert out.returncode == 0
    assert "acme-h100" in out.stdout
    assert "our H100" in out.stdout
    assert "95GiB" in run(acme, "show", "gpu", "acme-h100").stdout


def test_a_module_of_a_package_fills_registries(acme: Package) -> None:
    (acme.folder / "acme_data" / "orders.py").write_text(SCHEDULE)
    acme.add("trainsim.modules", "anything", "acme_data.orders")
    out = run(acme, "list", "schedules")
    assert out.returncode == 0, out.stderr
    assert "acme-order" in out.stdout
    own, theirs = (run(acme, "show", "schedule", name, "--json").stdout for name in ("gpipe", "acme-order"))
    assert own == theirs
    assert len(own) > 100


BROKEN = {  # what is wrong -> the group, the name and the value of the entry point, and what is said
    "no such catalogue": (
        "trainsim.catalogues",
        "gpu",
        "acme_data",
        "no catalogue is called 'gpu'; did you mean 'gpus'?",
    ),
    "no such package": ("trainsim.catalogues", "gpus", "acme_data.nothing", "acme_data.nothing is not a package"),
    "a package around it fails": ("trainsim.catalogues", "gpus", "acme_data.bad.gpus", "ZeroDivisionError"),
    "no files": ("trainsim.catalogues", "gpus", "acme_data.empty", "has no .yaml files"),
    "no such module": ("trainsim.modules", "x", "acme_data.nothing", "No module named 'acme_data.nothing'"),
    "a module that fails": ("trainsim.modules", "x", "acme_data.bad", "ZeroDivisionError: division by zero"),
    "a module that leaves": ("trainsim.modules", "x", "acme_data.clash", "two schedules are called 'gpipe'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_named_and_there_is_no_traceback(case: str, acme: Package) -> None:
    group, name, value, told = BROKEN[case]
    for module, text in (("bad", "1 / 0\n"), ("empty", ""), ("clash", SCHEDULE.replace("acme-order", "gpipe"))):
        (acme.folder / "acme_data" / module).mkdir()
        (acme.folder / "acme_data" / module / "__init__.py").write_text(text)
    acme.add(group, name, value)
    out = run(acme, "list", "gpus" if group == "trainsim.catalogues" else "schedules")
    assert out.returncode == 2
    assert out.stdout == ""
    assert out.stderr.startswith("trainsim: package acme 1.0")
    assert told in out.stderr
    assert "Traceback" not in out.stderr
    assert len(out.stderr.splitlines()) == 1


def test_a_broken_file_is_reported_as_any_other(acme: Package) -> None:
    acme.data("gpus", {"acme-gpu": "base: h100-sxm5-80gb\nmemry: 1GiB\n"})
    with pytest.raises(TrainsimError, match=r"acme-gpu.yaml:2: memry.*'memory'"):
        load_gpu("acme-gpu")
    assert load_gpu("l40s").name == "l40s"


def test_a_name_that_there_is_is_refused(acme: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acme.data("gpus", {"l40s": GPU})
    with pytest.raises(BrokenPlugin, match=r"package acme 1.0 adds a GPU called 'l40s', and so does trainsim itself"):
        load_gpu("l40s")
    (acme.folder / "acme_data" / "gpus" / "l40s.yaml").rename(acme.folder / "acme_data" / "gpus" / "acme-gpu.yaml")
    assert load_gpu("acme-gpu").memory == 95 * 2**30
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    Package(tmp_path / "other", "other").data("gpus", {"acme-gpu": GPU})
    sys.path.insert(0, str(tmp_path / "other"))
    with pytest.raises(
        BrokenPlugin, match=r"package other 1.0 adds a GPU called 'acme-gpu', and so does package acme 1.0"
    ):
        load_gpu("acme-gpu")
    sys.path.remove(str(tmp_path / "other"))


def test_a_catalogue_without_a_key_asks_nobody(tmp_path: Path, acme: Package) -> None:
    (tmp_path / "a.yaml").write_text("x: 1\n")
    acme.add("trainsim.catalogues", "nonsense", "nothing")
    assert Catalogue(kind="thing", plural="things", folders=(tmp_path,)).names() == ("a",)
