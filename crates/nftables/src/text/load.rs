//! The text of loads from optional headers, routes, sockets and IPsec transformations.
//!
//! The way back of `Load::expr` and `Load::store` in `language/load.rs`, which has the words. A
//! kernel expression only fills a register, so there is nothing to print yet: `load` notes what the
//! register holds, and the comparison or the assignment that reads it prints `tcp option maxseg
//! size` (see `listing.rs`). What must stay true: each value that is noted here equals the one of
//! a caller who writes the same rule, because comparisons of rules start from it.

use super::expr::List;
use super::listing::Listing;
use crate::expr::{Exthdr, ExthdrAccess, Osf, Rt, Socket, Xfrm};
use crate::expression::Expression;
use crate::language::load::{Load, fmt_present};

impl List for Exthdr {
    fn list(&self, listing: &mut Listing) {
        let (op, kind) = (self.op, self.kind);
        let field = |offset, len, present| {
            Expression::load(Load::Exthdr {
                op,
                kind,
                offset,
                len,
                present,
            })
        };
        match self.access {
            ExthdrAccess::Load {
                destination,
                offset,
                len,
                present,
            } => listing.load(destination, field(offset, len, present)),
            // `false`: only bytes can be written, not whether they are there.
            ExthdrAccess::Store {
                source,
                offset,
                len,
            } => listing.set(field(offset, len, false), source),
            // A statement of its own, which reads no register: `reset tcp option sack-perm`.
            ExthdrAccess::Reset => {
                let mut text = String::from("reset ");
                // Writing to a string cannot fail.
                let _ = fmt_present(&mut text, op, kind);
                listing.push(text);
            }
        }
    }
}

impl List for Rt {
    fn list(&self, listing: &mut Listing) {
        listing.load(self.destination, Expression::load(Load::Rt(self.key)));
    }
}

impl List for Socket {
    fn list(&self, listing: &mut Listing) {
        listing.load(self.destination, Expression::load(Load::Socket(self.key)));
    }
}

impl List for Xfrm {
    fn list(&self, listing: &mut Listing) {
        let (key, direction, spnum) = (self.key, self.direction, self.spnum);
        let load = Load::Xfrm {
            key,
            direction,
            spnum,
        };
        listing.load(self.destination, Expression::load(load));
    }
}

impl List for Osf {
    fn list(&self, listing: &mut Listing) {
        let (ttl, version) = (self.ttl, self.version);
        listing.load(
            self.destination,
            Expression::load(Load::Osf { ttl, version }),
        );
    }
}
