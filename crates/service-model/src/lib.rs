//! Kubernetes Services resolved into service ports: who gets traffic.
