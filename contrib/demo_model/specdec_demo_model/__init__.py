"""A small tool-calling model that loads offline, and requests to try it on."""

from __future__ import annotations

from specdec_demo_model.demo_requests import REQUESTS, DemoRequest, requests
from specdec_demo_model.loading import load
from specdec_demo_model.weights import MissingWeights, find_weights

__all__ = ["REQUESTS", "DemoRequest", "MissingWeights", "find_weights", "load", "requests"]
