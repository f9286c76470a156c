"""From a job and a profile to a plan: what the cluster gives, what the job asks, and whether the one fits the other."""
