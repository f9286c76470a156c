"""A profile compared with the cluster on whose login node this runs (``hpcjob profile check``), read only."""
