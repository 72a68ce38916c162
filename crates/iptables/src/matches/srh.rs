//! `-m srh`: segment routing header of IPv6.

use ipnet::IpNet;

use crate::field::extension;
use crate::negatable::Negatable;

extension! {
    /// Matches the segment routing header: `-m srh --srh-segs-left-eq 1`.
    ///
    /// Host bits of networks are preserved, as in the kernel.
    pub struct Srh = "-m srh" {
        /// Next header.
        next_header: Option<Negatable<u8>> = "--srh-next-hdr",
        /// Length equal to the value.
        length: Option<Negatable<u8>> = "--srh-hdr-len-eq",
        /// Length greater than the value.
        length_gt: Option<Negatable<u8>> = "--srh-hdr-len-gt",
        /// Length less than the value.
        length_lt: Option<Negatable<u8>> = "--srh-hdr-len-lt",
        /// Segments left equal to the value.
        segments_left: Option<Negatable<u8>> = "--srh-segs-left-eq",
        /// Segments left greater than the value.
        segments_left_gt: Option<Negatable<u8>> = "--srh-segs-left-gt",
        /// Segments left less than the value.
        segments_left_lt: Option<Negatable<u8>> = "--srh-segs-left-lt",
        /// Last entry equal to the value.
        last_entry: Option<Negatable<u8>> = "--srh-last-entry-eq",
        /// Last entry greater than the value.
        last_entry_gt: Option<Negatable<u8>> = "--srh-last-entry-gt",
        /// Last entry less than the value.
        last_entry_lt: Option<Negatable<u8>> = "--srh-last-entry-lt",
        /// Tag.
        tag: Option<Negatable<u16>> = "--srh-tag",
        /// Previous segment.
        previous: Option<Negatable<IpNet>> = "--srh-psid",
        /// Next segment.
        next: Option<Negatable<IpNet>> = "--srh-nsid",
        /// Last segment.
        last: Option<Negatable<IpNet>> = "--srh-lsid",
    }
    complete |_| true;
}
