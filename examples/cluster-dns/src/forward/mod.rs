//! Upstream name servers and the cache of their answers.
