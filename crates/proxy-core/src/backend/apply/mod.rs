//! IO that several modes share.

pub(in crate::backend) mod foreign_commits;
