//! `-j AUDIT`: audit records.

use crate::field::{extension, names};

extension! {
    /// Creates audit records: `-j AUDIT --type drop`.
    pub struct Audit = "-j AUDIT" {
        /// Type of the record; iptables requires one.
        ty: Option<AuditType> = "--type",
    }
}

names! {
    /// Types of audit records.
    pub enum AuditType by str::eq_ignore_ascii_case {
        /// The packet is accepted.
        Accept = "accept",
        /// The packet is dropped.
        Drop = "drop",
        /// The packet is rejected.
        Reject = "reject",
    }
}
