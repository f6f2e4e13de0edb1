"""A plugin that leaves when imported."""

import sys

sys.exit("this plugin needs another machine")
