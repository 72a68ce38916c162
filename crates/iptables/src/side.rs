//! Sides of a packet: where it comes from and where it goes.

use std::fmt;

/// The source or the destination of a packet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Side {
    /// Where it comes from.
    #[default]
    Source,
    /// Where it goes.
    Destination,
}

/// Sides, one for each dimension of a set: `src,dst`; one to six.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Sides {
    /// How many there are.
    len: u8,
    /// Which of them are destinations, the first one in the lowest bit.
    destinations: u8,
}

impl Sides {
    /// The greatest number of dimensions: `IPSET_DIM_MAX`.
    const MAX: u8 = 6;

    /// Makes sides, unless there are none or more than six.
    pub fn new(sides: impl IntoIterator<Item = Side>) -> Option<Self> {
        let mut all = Self {
            len: 0,
            destinations: 0,
        };
        for side in sides {
            if all.len == Self::MAX {
                return None;
            }
            all.destinations |= u8::from(side == Side::Destination) << all.len;
            all.len += 1;
        }
        (all.len > 0).then_some(all)
    }

    /// Reads `src` or `dst`, or several with commas.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut known = true;
        let sides = text.split(',').map(|name| {
            known &= matches!(name, "src" | "dst");
            if name == "dst" {
                Side::Destination
            } else {
                Side::Source
            }
        });
        Self::new(sides).filter(|_| known)
    }

    /// Returns the sides in their order.
    pub fn iter(self) -> impl Iterator<Item = Side> {
        (0..self.len).map(move |at| match self.destinations >> at & 1 {
            0 => Side::Source,
            _ => Side::Destination,
        })
    }
}

impl From<Side> for Sides {
    fn from(only: Side) -> Self {
        Self {
            len: 1,
            destinations: u8::from(only == Side::Destination),
        }
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, side) in self.iter().enumerate() {
            f.write_str(if at > 0 { "," } else { "" })?;
            f.write_str(match side {
                Side::Source => "src",
                Side::Destination => "dst",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_one_to_six_sides() {
        for text in ["src", "dst", "src,dst", "dst,dst,src,dst,src,dst"] {
            assert_eq!(Sides::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "SRC", "src,", "src,src,src,src,src,src,src"] {
            assert_eq!(Sides::parse(text), None, "{text}");
        }
        assert_eq!(Sides::new([]), None);
        assert_eq!(
            Sides::new([Side::Destination]),
            Some(Side::Destination.into())
        );
    }
}
