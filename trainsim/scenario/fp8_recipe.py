"""How numbers of 8 bits and fewer are made: what the scenario says, or the framework does."""

from __future__ import annotations

from trainsim.errors import ScenarioError
from trainsim.frameworks import Framework
from trainsim.models.fp8_recipes import RECIPES_OF
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context, default

KEY = "training.fp8_recipe"


def fp8_recipe(context: Context, framework: Framework) -> str | None:
    """The recipe; None in precisions of 16 bits and more. Raises ScenarioError for one of another precision."""
    given, precision = context.spec.training.fp8_recipe, context.spec.training.precision
    able = RECIPES_OF.get(precision, ())
    if given is not None and given not in able:
        own = next(name for name, recipes in RECIPES_OF.items() if given in recipes)
        others = f", or one of {', '.join(able)}" if able else ""
        reason = f"belongs to training.precision: {own}, and this is {precision}"
        context.require(Fault(KEY, f"{reason}; write that{others}, or leave it out"), ScenarioError)
    if len(able) < 2:
        return able[0] if able else None
    return str(default(context, KEY, given, framework.kernels.fp8_recipe))
