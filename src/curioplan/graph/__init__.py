"""Graphs of dataset states: values over long distances, aggregated from short ones that can be trusted."""

from curioplan.graph.graph import Graph, Routes
from curioplan.graph.objectives import AggregatedValue, GraphView, NextSubgoal, Wayfinder, view

__all__ = ["AggregatedValue", "Graph", "GraphView", "NextSubgoal", "Routes", "Wayfinder", "view"]
