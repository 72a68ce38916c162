//! `-j AUDIT`: audit records.

use crate::extensions::structure::{Reader, Structure, Writer, at, position};
use crate::options::field::{extension, names};

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

/// `XT_AUDIT_TYPE_ACCEPT`, `XT_AUDIT_TYPE_DROP` and `XT_AUDIT_TYPE_REJECT`.
const TYPES: [AuditType; 3] = [AuditType::Accept, AuditType::Drop, AuditType::Reject];

/// `struct xt_audit_info`.
impl Structure for Audit {
    const NAME: &'static str = "AUDIT";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        out.u8(position(&TYPES, &self.ty?)?);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let ty = Some(at(&TYPES, reader.u8()?)?);
        Some(Self { ty })
    }
}
