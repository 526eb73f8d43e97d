"""Token files: their formats, reading them from a disk or from S3, and making them from text."""
