//! IO that several modes share.

pub(in crate::backend) mod all_tables;

#[cfg(feature = "iptables")]
pub(in crate::backend) mod recent_lists;
