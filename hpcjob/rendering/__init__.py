"""What the templates of a job script see: a plan in their words."""
