"""TREAD itself: which tokens are routed, how they travel, and the loop over blocks."""

from tread_lab.routing.re_entry import ReEntry, Return
from tread_lab.routing.select import Leg, Routing, draw_routing, select
from tread_lab.routing.walk import walk

__all__ = ["Leg", "ReEntry", "Return", "Routing", "draw_routing", "select", "walk"]
