"""Ranks on axes: Megatron-LM's order, and laws that hold for every order."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainsim.errors import TrainsimError
from trainsim.parallel.mesh import Mesh

USUAL = ("tp", "cp", "ep", "dp", "pp")


def test_megatron_example() -> None:
    """The docstring of Megatron-LM's initialize_model_parallel: 16 GPUs, tp 2, pp 4, hence dp 2."""
    mesh = Mesh.of(USUAL, {"tp": 2, "dp": 2, "pp": 4})
    assert mesh.groups("tp").tolist() == [[k, k + 1] for k in range(0, 16, 2)]
    assert mesh.groups("dp").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert mesh.groups("pp").tolist() == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert mesh.groups(("tp", "pp")).tolist() == [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]


meshes = st.builds(
    lambda order, tp, cp, dp, pp: Mesh.of(order, {"tp": tp, "cp": cp, "dp": dp, "pp": pp}),
    st.sampled_from(list(permutations(USUAL))),
    *[st.integers(1, 5) for _ in range(4)],
)


@given(mesh=meshes, axes=st.sets(st.sampled_from(["tp", "cp", "dp", "pp"]), min_size=1))
@settings(deadline=None, max_examples=100)
def test_groups_partition_the_ranks_and_differ_only_along_their_axes(mesh: Mesh, axes: set[str]) -> None:
    groups = mesh.groups(tuple(sorted(axes)))
    assert sorted(groups.ravel().tolist()) == list(range(mesh.ranks))
    assert (np.diff(groups, axis=1) > 0).all()
    assert (np.diff(groups[:, 0]) > 0).all()
    for axis, coordinate in mesh.coordinates(groups).items():
        assert axis in axes or (coordinate == coordinate[:, :1]).all()


@given(mesh=meshes)
@settings(deadline=None, max_examples=60)
def test_rank_is_the_inverse_of_coordinates(mesh: Mesh) -> None:
    ranks = np.arange(mesh.ranks)
    assert (mesh.rank(mesh.coordinates(ranks)) == ranks).all()
    assert mesh.grid.shape == mesh.sizes[::-1]
    assert (mesh.grid.ravel() == ranks).all()


def test_neighbours_along_the_innermost_axis_have_neighbouring_numbers() -> None:
    mesh = Mesh.of(("pp", "tp", "dp"), {"tp": 2, "dp": 3, "pp": 4})
    assert mesh.groups("pp")[0].tolist() == [0, 1, 2, 3]
    assert (mesh.stride("pp"), mesh.stride("tp"), mesh.stride("dp")) == (1, 4, 8)


def test_axes_of_one_rank_can_be_left_out() -> None:
    mesh = Mesh.of(("tp", "pp"), {"tp": 2, "pp": 2})
    assert mesh.groups("ep").tolist() == [[0], [1], [2], [3]]
    assert mesh.size("cp") == 1


@pytest.mark.parametrize(
    ("order", "sizes"),
    [(("tp", "tp"), {"tp": 2}), (("tp",), {"dp": 2}), (("tp", "xp"), {}), (("tp",), {"zp": 1})],
)
def test_wrong_orders_are_refused(order: tuple[str, ...], sizes: dict[str, int]) -> None:
    with pytest.raises(TrainsimError):
        Mesh.of(order, sizes)
