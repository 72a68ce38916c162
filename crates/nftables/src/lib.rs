//! nf_tables objects, expressions and atomic transactions over netlink.
