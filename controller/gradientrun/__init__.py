"""The Kubernetes controller for GradientRun."""
