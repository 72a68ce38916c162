//! `-m owner`: owner of the sending socket.

use std::fmt;

use crate::extensions::structure::{Conditions, Reader, Structure, Writer};
use crate::options::negatable::Negatable;
use crate::options::number::Range;
use crate::options::{Extension, Parsed, Unsupported, Values, set_flag, set_once};

/// Matches the owner of the sending socket: `-m owner --uid-owner 1000`.
///
/// Only numeric IDs and `root` are supported, not names of other users and groups.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Owner {
    /// Whether the packet has a socket.
    pub socket_exists: Option<Negatable<()>>,
    /// User ID of the process that created the socket.
    pub uid: Option<Negatable<Range<u32>>>,
    /// Group ID of the process that created the socket.
    pub gid: Option<Negatable<Range<u32>>>,
    /// Whether supplementary groups are checked, too.
    pub suppl_groups: bool,
}

impl Owner {
    /// Matches these user IDs.
    pub fn uid(users: impl Into<Range<u32>>) -> Self {
        Self {
            uid: Some(Negatable::Is(users.into())),
            ..Self::default()
        }
    }

    /// Matches these group IDs.
    pub fn gid(groups: impl Into<Range<u32>>) -> Self {
        Self {
            gid: Some(Negatable::Is(groups.into())),
            ..Self::default()
        }
    }
}

fn parse(text: &str) -> Option<Range<u32>> {
    if text == "root" {
        return Some(0.into());
    }
    Range::parse(text, '-', Range::<u32>::ALL)
        .filter(|_| !text.starts_with('-') && !text.ends_with('-'))
}

impl<'a> Extension<'a> for Owner {
    fn open() -> Self {
        Self::default()
    }

    fn options() -> &'static [&'static str] {
        &[
            "--uid-owner",
            "--gid-owner",
            "--socket-exists",
            "--suppl-groups",
        ]
    }

    fn parse_option(&mut self, option: &str, values: &mut Values<'_, 'a>) -> Parsed {
        match option {
            "--socket-exists" => set_once(
                &mut self.socket_exists,
                Negatable::new(values.negated(), ()),
            ),
            "--uid-owner" => set_once(&mut self.uid, values.negatable(parse)?),
            "--gid-owner" => set_once(&mut self.gid, values.negatable(parse)?),
            "--suppl-groups" if self.gid.is_none() => Err(Unsupported),
            "--suppl-groups" => set_flag(&mut self.suppl_groups),
            _ => Ok(false),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("-m owner")?;
        if let Some(exists) = &self.socket_exists {
            write!(f, " {}--socket-exists", exists.bang())?;
        }
        for (option, ids) in [("--uid-owner", &self.uid), ("--gid-owner", &self.gid)] {
            if let Some(ids) = ids {
                let Range { first, last } = ids.value();
                write!(f, " {}{option} {first}", ids.bang())?;
                if first != last {
                    write!(f, "-{last}")?;
                }
            }
        }
        if self.suppl_groups {
            f.write_str(" --suppl-groups")?;
        }
        Ok(())
    }
}

// Flags `match` and `invert` of `struct xt_owner_match_info`.
const XT_OWNER_UID: u8 = 1 << 0;
const XT_OWNER_GID: u8 = 1 << 1;
const XT_OWNER_SOCKET: u8 = 1 << 2;
const XT_OWNER_SUPPL_GROUPS: u8 = 1 << 3;
const XT_OWNER_MASK: u8 = XT_OWNER_UID | XT_OWNER_GID | XT_OWNER_SOCKET | XT_OWNER_SUPPL_GROUPS;

/// `struct xt_owner_match_info`.
impl Structure for Owner {
    const NAME: &'static str = "owner";
    const REVISION: u32 = 1;

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let mut conditions = Conditions::default();
        for (flag, ids) in [(XT_OWNER_UID, &self.uid), (XT_OWNER_GID, &self.gid)] {
            let ids = conditions.put(flag, ids);
            let Range { first, last } = ids.unwrap_or(Range { first: 0, last: 0 });
            out.u32(first).u32(last);
        }
        conditions.put(XT_OWNER_SOCKET, &self.socket_exists);
        conditions.put_flag(XT_OWNER_SUPPL_GROUPS, self.suppl_groups);
        out.u8(conditions.used).u8(conditions.negated);
        Some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut ids = || {
            let (first, last) = (reader.u32()?, reader.u32()?);
            Some(Range { first, last })
        };
        let (uid, gid) = (ids()?, ids()?);
        let [used, negated] = reader.array()?;
        if used > XT_OWNER_MASK || negated & XT_OWNER_SUPPL_GROUPS != 0 {
            return None;
        }
        let conditions = Conditions { used, negated };
        Some(Self {
            socket_exists: conditions.get(XT_OWNER_SOCKET, ()),
            uid: conditions.get(XT_OWNER_UID, uid),
            gid: conditions.get(XT_OWNER_GID, gid),
            suppl_groups: conditions.has(XT_OWNER_SUPPL_GROUPS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn owner_is_parsed_and_printed() {
        let all = Owner {
            socket_exists: Some(Negatable::Not(())),
            uid: Some(Negatable::Is((0..=100).into())),
            gid: Some(Negatable::Not(5.into())),
            suppl_groups: true,
        };
        let table = [
            ("-m owner --uid-owner 0", Owner::uid(0)),
            ("-m owner --gid-owner 1-2", Owner::gid(1..=2)),
            (
                "-m owner ! --socket-exists --uid-owner 0-100 ! --gid-owner 5 --suppl-groups",
                all,
            ),
        ];
        for (text, owner) in table {
            let rule = Rule::new().with_match(owner);
            assert_eq!(rule.to_string(), text);
            assert_eq!(Rule::parse(text), Ok(rule));
        }
        for text in ["-m owner --uid-owner user", "-m owner --uid-owner 5-"] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }
}
