"""The search for the layout that fits and has the least predicted time: the choices, their costs, and the result."""

from meshtf.layout_search._pricing import MeshLayout, PricedLayout
from meshtf.layout_search.auto_layout import auto_layout
from meshtf.layout_search.candidate_meshes import ANY_MESH_AXES, AUTO_MESH
from meshtf.layout_search.layout_choice import LayoutChoice
from meshtf.layout_search.search_progress import SearchEnd, SearchProgress

__all__ = [
    "ANY_MESH_AXES",
    "AUTO_MESH",
    "LayoutChoice",
    "MeshLayout",
    "PricedLayout",
    "SearchEnd",
    "SearchProgress",
    "auto_layout",
]
