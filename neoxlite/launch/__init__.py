"""Start a run on this machine or on the hosts of a hostfile, as GPT-NeoX's deepy.py does. Imports no torch."""
