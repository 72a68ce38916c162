//! Tables.

use std::{fmt, slice};

use bitflags::bitflags;

use crate::{Bytes, Comment, Family, Name};

/// Family and name of a table.
///
/// Exhaustive: family and name identify a table.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TableId {
    /// Family.
    pub family: Family,
    /// Name, unique within the family.
    pub name: Name,
}

impl TableId {
    /// Creates the ID of a table.
    pub fn new(family: Family, name: Name) -> Self {
        Self { family, name }
    }
}

/// One table is a list of tables, such as the argument of
/// [`Client::dump`](crate::Client::dump).
impl AsRef<[Self]> for TableId {
    fn as_ref(&self) -> &[Self] {
        slice::from_ref(self)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

bitflags! {
    /// Table flags: `enum nft_table_flags` of `linux/netfilter/nf_tables.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct TableFlags: u32 {
        /// The table's chains are not evaluated.
        #[doc(alias = "NFT_TABLE_F_DORMANT")]
        const DORMANT = 0x1;
        /// Only the netlink socket that created the table can change it.
        #[doc(alias = "NFT_TABLE_F_OWNER")]
        const OWNER = 0x2;
        /// The table persists after its owner's socket is closed.
        #[doc(alias = "NFT_TABLE_F_PERSIST")]
        const PERSIST = 0x4;
        /// Unknown flags are preserved.
        const _ = !0;
    }
}

/// A table, without its chains and sets.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Table {
    /// Family and name.
    pub id: TableId,
    /// Flags.
    pub flags: TableFlags,
    /// Comment, listed by `nft`.
    pub comment: Option<Comment>,
    /// User data of a dump that this crate would write otherwise.
    pub(crate) userdata: Option<Bytes>,
}

impl Table {
    /// Creates a table without flags or comment.
    pub fn new(id: TableId) -> Self {
        Self {
            id,
            flags: TableFlags::empty(),
            comment: None,
            userdata: None,
        }
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: TableFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// Sets the comment.
    #[must_use]
    pub fn with_comment(mut self, comment: Comment) -> Self {
        self.comment = Some(comment);
        self
    }
}
