//! Health, readiness, metrics and the query log.
