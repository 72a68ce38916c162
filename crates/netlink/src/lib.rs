//! A synchronous netlink client: requests, batches, dumps and extended ACKs.
