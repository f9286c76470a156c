"""A real cluster on this machine: virtual hosts in namespaces, and Slurm on them, as plain processes.

``Testbed`` is the whole of it; ``python -m tests.cluster.testbed up`` brings one up to try things by hand.
Needs root on Linux and the programs of ``scripts/install_services.sh``; neither systemd nor a container engine.
"""

from tests.cluster.testbed.bed import Testbed
from tests.cluster.testbed.hosts import Host
from tests.cluster.testbed.requirements import missing_services

__all__ = ["Host", "Testbed", "missing_services"]
