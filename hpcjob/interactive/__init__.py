"""Shells on compute nodes with the profile, resources and environment of a job (``hpcjob interactive``)."""
