//! `-m ipv6header`: extension headers of IPv6.

use std::fmt;

use bitflags::bitflags;

use crate::Family;
use crate::extensions::structure::{Reader, Structure, Writer};
use crate::options::field::{extension, word_values};
use crate::options::negatable::Negatable;

extension! {
    /// Matches the extension headers of a packet: `-m ipv6header --header route --soft`.
    pub struct Ipv6Header = "-m ipv6header" {
        /// Headers.
        headers: Option<Negatable<Ipv6Headers>> = "--header",
        /// Whether the packet may have other headers, too.
        soft: bool = "--soft",
    }
    complete |it| it.headers.is_some();
}

bitflags! {
    /// Extension headers. The bits are those of `struct ip6t_ipv6header_info`.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Ipv6Headers: u8 {
        /// Hop-by-hop options.
        const HOP_BY_HOP = 0x80;
        /// Destination options.
        const DESTINATION = 0x40;
        /// Routing.
        const ROUTE = 0x20;
        /// Fragment.
        const FRAGMENT = 0x10;
        /// Authentication.
        const AUTHENTICATION = 8;
        /// Encapsulating security payload.
        const ESP = 4;
        /// No next header.
        const NONE = 2;
        /// Upper-layer protocol.
        const PROTOCOL = 1;
    }
}

/// Names that iptables prints with Debian's `/etc/protocols`, and other names of each
/// header, in the order in which they are printed.
const HEADERS: [(Ipv6Headers, &str, &[&str]); 8] = [
    (Ipv6Headers::HOP_BY_HOP, "hop-by-hop", &["hop", "0"]),
    (Ipv6Headers::DESTINATION, "ipv6-opts", &["dst", "60"]),
    (Ipv6Headers::ROUTE, "ipv6-route", &["route", "43"]),
    (Ipv6Headers::FRAGMENT, "ipv6-frag", &["frag", "44"]),
    (Ipv6Headers::AUTHENTICATION, "ah", &["auth", "51"]),
    (Ipv6Headers::ESP, "esp", &["50"]),
    (Ipv6Headers::NONE, "ipv6-nonxt", &["none", "59"]),
    (Ipv6Headers::PROTOCOL, "protocol", &["prot", "255"]),
];

impl Ipv6Headers {
    fn parse(text: &str) -> Option<Self> {
        let header = |text: &str| {
            let is_it =
                |(_, name, others): &&(_, &str, &[&str])| *name == text || others.contains(&text);
            HEADERS.iter().find(is_it).map(|(header, ..)| *header)
        };
        text.split(',').map(header).collect()
    }
}

impl fmt::Display for Ipv6Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = HEADERS.iter().filter(|(header, ..)| self.contains(*header));
        for (at, (_, name, _)) in set.enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

word_values! { Ipv6Headers = Ipv6Headers::parse, }

/// `struct ip6t_ipv6header_info`.
impl Structure for Ipv6Header {
    const NAME: &'static str = "ipv6header";

    fn write(&self, out: &mut Writer<'_>) -> Option<()> {
        let headers = self.headers?;
        let all = |is_set: bool| if is_set { u8::MAX } else { 0 };
        out.u8(headers.value().bits()).u8(all(headers.is_negated()));
        out.u8(all(self.soft));
        (out.family() == Family::V6).then_some(())
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [headers, inverted, soft] = reader.array()?;
        let headers = Ipv6Headers::from_bits(headers)?;
        Some(Self {
            headers: Some(Negatable::new(inverted != 0, headers)),
            soft: soft != 0,
        })
    }
}
