"""A real Kubernetes for tests and for trying the product, on whatever the machine offers."""
