//! The text of loads from optional headers, routes, sockets and IPsec transformations.

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
            ExthdrAccess::Store {
                source,
                offset,
                len,
            } => listing.set(field(offset, len, false), source),
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
