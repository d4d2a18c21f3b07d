"""Graphs of dataset states: values over long distances, aggregated from short ones that can be trusted."""

from curioplan.graph.graph import Graph, Routes
from curioplan.graph.objectives import AggregatedValue, NextSubgoal, Wayfinder

__all__ = ["AggregatedValue", "Graph", "NextSubgoal", "Routes", "Wayfinder"]
