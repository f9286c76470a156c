"""GPT-NeoX configurations, without torch: reading, merging, checking, and the arithmetic that follows from them."""

from neoxlite.config.keys import Key, Support, key_table
from neoxlite.config.load import load_config
from neoxlite.config.neox import NeoxConfig
from neoxlite.config.overrides import parse_assignments
from neoxlite.errors import ConfigError

__all__ = ["ConfigError", "Key", "NeoxConfig", "Support", "key_table", "load_config", "parse_assignments"]
