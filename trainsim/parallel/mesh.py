"""
How ranks are laid on the axes of parallelism, in Megatron-LM's order.

Rank numbers are digits in a mixed base: the first axis of ``order`` varies fastest. Expert parallelism lies
inside data parallelism (its ranks are replicas for all but the experts): ``ep`` takes no digit of its own in the mesh
of everything else, and experts have a mesh of theirs over the same ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from trainsim.errors import InvalidPlan, UnknownName

Ints = npt.NDArray[np.int64]
AXES = ("tp", "cp", "ep", "dp", "pp")
EXPERT_PLACES = {"tp": "etp", "ep": "ep", "dp": "edp", "pp": "pp"}
"""What stands in the place of each axis where experts are laid out; context parallelism has none of its own."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks as points of a grid: ``order`` names the axes innermost first, ``sizes`` gives their lengths.

    >>> mesh = Mesh.of(("tp", "dp", "pp"), {"tp": 2, "dp": 2, "pp": 2})
    >>> mesh.groups("pp").tolist()
    [[0, 4], [1, 5], [2, 6], [3, 7]]
    >>> {axis: int(c) for axis, c in mesh.coordinates(np.array(6)).items()}
    {'tp': 0, 'dp': 1, 'pp': 1}
    """

    order: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, order: tuple[str, ...], sizes: Mapping[str, int]) -> Mesh:
        """A mesh of *sizes* (axes without a size have one rank); ``ep`` is left out: it lies inside ``dp``.

        Raises InvalidPlan if *order* names an axis twice, or not an axis that has more than one rank.
        """
        unknown = [axis for axis in (*order, *sizes) if axis not in AXES]
        if unknown:
            raise UnknownName("axis", unknown[0], AXES)
        lost = [axis for axis, size in sizes.items() if size > 1 and axis not in order]
        if lost or len(set(order)) != len(order):
            raise InvalidPlan(
                f"order {list(order)} must name each axis once; it has to hold {list(AXES)} in some order"
            )
        axes = tuple(axis for axis in order if axis != "ep")
        return cls(axes, tuple(int(sizes.get(axis, 1)) for axis in axes))

    @classmethod
    def of_experts(cls, order: tuple[str, ...], sizes: Mapping[str, int]) -> Mesh:
        """How the same ranks are laid out for experts, as Megatron-LM does it: ``etp`` in the place of tp, ``edp`` in
        that of dp. *order* is that of all other layers.

        >>> mesh = Mesh.of_experts(("tp", "cp", "ep", "dp", "pp"), {"etp": 1, "ep": 4, "edp": 2, "pp": 2})
        >>> mesh.groups("ep").tolist()
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
        """
        axes = tuple(EXPERT_PLACES[axis] for axis in order if axis in EXPERT_PLACES)
        return cls(axes, tuple(int(sizes.get(axis, 1)) for axis in axes))

    @property
    def ranks(self) -> int:
        return prod(self.sizes)

    @property
    def grid(self) -> Ints:
        """All ranks as an array whose last dimension is the innermost axis, ``order[0]``."""
        return np.arange(self.ranks, dtype=np.int64).reshape(self.sizes[::-1])

    def size(self, axis: str) -> int:
        """Ranks along *axis*; 1 for an axis that is not in the mesh."""
        return self.sizes[self.order.index(axis)] if axis in self.order else 1

    def stride(self, axis: str) -> int:
        """Distance of neighbours along *axis*, in ranks."""
        return prod(self.sizes[: self.order.index(axis)]) if axis in self.order else self.ranks

    def coordinates(self, ranks: Ints) -> dict[str, Ints]:
        """The coordinate of each of *ranks* on every axis."""
        ranks = np.asarray(ranks, np.int64)
        return {axis: ranks // self.stride(axis) % self.size(axis) for axis in self.order}

    def rank(self, coordinates: Mapping[str, int | Ints]) -> Ints:
        """The inverse of ``coordinates``; axes that are left out are 0."""
        return np.asarray(sum(np.asarray(c) * self.stride(axis) for axis, c in coordinates.items()), np.int64)

    def groups(self, axes: str | tuple[str, ...]) -> Ints:
        """Ranks that differ only along *axes*: a row per group, by first rank; members in rising order."""
        axes = (axes,) if isinstance(axes, str) else axes
        positions = [len(self.order) - 1 - self.order.index(axis) for axis in axes if axis in self.order]
        inner = sorted(positions)
        outer = [k for k in range(len(self.order)) if k not in inner]
        members = prod(self.sizes[::-1][k] for k in inner)
        return self.grid.transpose(*outer, *inner).reshape(-1, members)

    def first_group(self, axes: str | tuple[str, ...]) -> Ints:
        """The first of ``groups``, without the others.

        >>> Mesh.of(("tp", "dp", "pp"), {"tp": 2, "dp": 2, "pp": 2}).first_group(("tp", "pp")).tolist()
        [0, 1, 4, 5]
        """
        axes = (axes,) if isinstance(axes, str) else axes
        out = np.zeros(1, np.int64)
        for axis in self.order:
            if axis in axes:
                out = (np.arange(self.size(axis), dtype=np.int64)[:, None] * self.stride(axis) + out).ravel()
        return out
