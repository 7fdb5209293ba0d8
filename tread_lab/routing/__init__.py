"""TREAD itself: which tokens are routed, how they travel, and the loop over blocks."""

from tread_lab.routing.rejoin import Rejoin, Return
from tread_lab.routing.run_blocks import run_blocks
from tread_lab.routing.select import BatchRoute, Routing, draw_routing, select

__all__ = ["BatchRoute", "Rejoin", "Return", "Routing", "draw_routing", "run_blocks", "select"]
