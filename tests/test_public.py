"""The public names: all are there, and each means one thing."""

import pkgutil
from types import ModuleType

import pytest

import trainsim
import trainsim as ts


@pytest.mark.parametrize("name", ts.__all__)
def test_every_public_name_is_there(name: str) -> None:
    found = getattr(ts, name)
    assert callable(found) or isinstance(found, ModuleType)
    assert name in dir(ts)


def test_no_package_is_called_like_a_public_function() -> None:
    """Else the one would hide the other as soon as it is imported."""
    packages = {module.name for module in pkgutil.iter_modules(trainsim.__path__)}
    functions = {name for name in ts.__all__ if not isinstance(getattr(ts, name), ModuleType)}
    assert functions & packages == set()


def test_the_parts_work_alone() -> None:
    cluster = ts.topology("dgx_a100", nodes=4)
    assert cluster.ranks == 32
    assert ts.collective_time(cluster, "all_reduce", ranks=range(8), nbytes=1 << 30) > 0
    order = ts.schedule("1f1b", stages=4, microbatches=8, chunks=1)
    replay = ts.replay(order, forward=1, input_gradient=1, weight_gradient=1, p2p=0)
    assert replay.makespan == pytest.approx(3 * (8 + 3))


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(AttributeError, match="Scenario"):
        _ = ts.scenaro


def test_a_difference_of_runs_says_from_where() -> None:
    base = ts.Scenario.from_dict(
        {
            "model": {"name": "tiny", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "max_positions": 512},
            "cluster": {"topology": "dgx_a100", "nodes": 1},
            "parallel": {"pp": 2},
            "training": {"sequence_length": 256, "global_batch": 64},
        }
    )
    one, two = base.run(), base.replace({"training.recompute": "full"}).run()
    difference = two - one
    assert difference.seconds == pytest.approx(two.step_time - one.step_time)
    assert difference.breakdown["recompute"] > 0
    assert difference.changes["training.recompute"] == ("none", "full")
