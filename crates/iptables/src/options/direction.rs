//! Source or destination fields of packets.

use std::fmt;

/// The source or destination of a packet.
///
/// Exhaustive: an address of a packet is its source or its destination.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Direction {
    /// Source.
    #[default]
    Source,
    /// Destination.
    Destination,
}

/// Directions, one per dimension of an IP set: `src,dst`. 1 to 6 entries.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SetDirections {
    /// Number of entries.
    len: u8,
    /// Bit set of the entries that are destinations; bit 0 is the first entry.
    destinations: u8,
}

impl SetDirections {
    /// Maximum number of dimensions: `IPSET_DIM_MAX`.
    const MAX: u8 = 6;

    /// Creates a list. Returns `None` if it is empty or has more than 6 entries.
    pub fn new(directions: impl IntoIterator<Item = Direction>) -> Option<Self> {
        let mut all = Self {
            len: 0,
            destinations: 0,
        };
        for direction in directions {
            if all.len == Self::MAX {
                return None;
            }
            all.destinations |= u8::from(direction == Direction::Destination) << all.len;
            all.len += 1;
        }
        (all.len > 0).then_some(all)
    }

    /// Parses comma-separated `src` and `dst`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut known = true;
        let directions = text.split(',').map(|name| {
            known &= matches!(name, "src" | "dst");
            if name == "dst" {
                Direction::Destination
            } else {
                Direction::Source
            }
        });
        Self::new(directions).filter(|_| known)
    }

    /// Returns the directions in order.
    pub fn iter(self) -> impl Iterator<Item = Direction> {
        (0..self.len).map(move |at| match self.destinations >> at & 1 {
            0 => Direction::Source,
            _ => Direction::Destination,
        })
    }
}

impl From<Direction> for SetDirections {
    fn from(only: Direction) -> Self {
        Self {
            len: 1,
            destinations: u8::from(only == Direction::Destination),
        }
    }
}

impl fmt::Display for SetDirections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, direction) in self.iter().enumerate() {
            f.write_str(if at > 0 { "," } else { "" })?;
            f.write_str(match direction {
                Direction::Source => "src",
                Direction::Destination => "dst",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_directions_have_1_to_6_entries() {
        for text in ["src", "dst", "src,dst", "dst,dst,src,dst,src,dst"] {
            assert_eq!(SetDirections::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "SRC", "src,", "src,src,src,src,src,src,src"] {
            assert_eq!(SetDirections::parse(text), None, "{text}");
        }
        assert_eq!(SetDirections::new([]), None);
        assert_eq!(
            SetDirections::new([Direction::Destination]),
            Some(Direction::Destination.into())
        );
    }
}
