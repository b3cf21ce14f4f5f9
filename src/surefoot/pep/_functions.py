"""The class of functions that PEPit lacks. Import this module only once PEPit is known to be there."""

from __future__ import annotations

from typing import Any

from PEPit.function import Function


class WeaklyConvexFunction(Function):  # type: ignore[misc]
    """f + η/2‖·‖² is convex and f ≥ 0, by interpolation conditions that are necessary and sufficient:

        f_i ≥ f_j + ⟨g_j, x_i − x_j⟩ − η/2‖x_i − x_j‖²,    f_i ≥ 0        for all pairs i ≠ j.

    Sufficient, because the largest of the constant 0 and of these right-hand sides, as functions of x_i, is such an f,
    takes the values f_j, and has the subgradients g_j. η = 0 gives the convex functions above 0.
    """

    def __init__(self, weak_convexity: float, **options: Any) -> None:
        super().__init__(**{"is_leaf": True, **options})
        self.weak_convexity = weak_convexity

    def add_class_constraints(self) -> None:
        """Write the conditions for the points at which the function was evaluated."""
        self.add_constraints_from_one_list_of_points(
            list_of_points=self.list_of_points,
            constraint_name="lower_bound",
            set_class_constraint_i=lambda x, g, f: f >= 0.0,
        )
        self.add_constraints_from_two_lists_of_points(
            list_of_points_1=self.list_of_points,
            list_of_points_2=self.list_of_points,
            constraint_name="weak_convexity",
            set_class_constraint_i_j=self._above_the_parabola,
        )

    def _above_the_parabola(self, xi: Any, gi: Any, fi: Any, xj: Any, gj: Any, fj: Any) -> Any:
        return fi - fj >= gj * (xi - xj) - self.weak_convexity / 2 * (xi - xj) ** 2
