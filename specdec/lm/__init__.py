"""A language model to talk to: chat, generate, stream, with tool calls read and drafts counted."""

from specdec.lm.loader import load
from specdec.lm.model import LanguageModel, SpokenTarget
from specdec.lm.openai import chunks
from specdec.lm.options import Options
from specdec.lm.reply import Done, Reply

__all__ = ["Done", "LanguageModel", "Options", "Reply", "SpokenTarget", "chunks", "load"]
