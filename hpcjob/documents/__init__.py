"""YAML documents checked against a structure; every mistake is told with its file, line and key."""
