//! Targets: `-j NAME` with its options, jumps and gotos.
//!
//! The types are exhaustive, except [`Target`]: their fields are all options of the
//! extension in iptables 1.8. A target with another option is [`Target::Other`].

mod audit;

mod checksum;

mod classify;

mod connmark;

mod connsecmark;

mod ct;

mod dnat;

mod dnpt;

mod dscp;

mod ecn;

mod hl;

mod hmark;

mod idletimer;

mod led;

mod log;

mod mark;

mod masquerade;

mod nat;

mod netmap;

mod nflog;

mod nfqueue;

mod rateest;

mod redirect;

mod reject;

mod secmark;

mod set;

mod snat;

mod snpt;

mod synproxy;

mod tcpmss;

mod tcpoptstrip;

mod tee;

mod tos;

mod tproxy;

mod ttl;

use std::borrow::Cow;
use std::fmt;

use crate::ChainName;
use crate::extensions::extensions;
use crate::structure::{self, Context, Encoded, Structure};

use self::ct::Notrack;

pub use audit::{Audit, AuditType};
pub use checksum::Checksum;
pub use classify::{ClassId, Classify};
pub use connmark::{Connmark, ConnmarkAction, Masks, Shift};
pub use connsecmark::Connsecmark;
pub use ct::{Ct, CtEvents, Zone, ZoneDirection};
pub use dnat::Dnat;
pub use dnpt::Dnpt;
pub use dscp::Dscp;
pub use ecn::Ecn;
pub use hl::Hl;
pub use hmark::{Hex, Hmark, HmarkTuple};
pub use idletimer::Idletimer;
pub use led::{Led, LedDelay, LedTrigger};
pub use log::Log;
pub use mark::Mark;
pub use masquerade::Masquerade;
pub use nat::{AddressRange, NatPorts};
pub use netmap::Netmap;
pub use nflog::Nflog;
pub use nfqueue::Nfqueue;
pub use rateest::{EstimatorTime, Rateest};
pub use redirect::Redirect;
pub use reject::Reject;
pub use secmark::Secmark;
pub use set::{Set, SetReference};
pub use snat::Snat;
pub use snpt::Snpt;
pub use synproxy::Synproxy;
pub use tcpmss::Tcpmss;
pub use tcpoptstrip::{TcpOptions, Tcpoptstrip};
pub use tee::Tee;
pub use tos::Tos;
pub use tproxy::Tproxy;
pub use ttl::Ttl;

/// Names of unsupported target extensions, which are preserved as text and are no
/// chain names.
const OTHERS: &[&str] = &["CLUSTERIP", "QUEUE", "ULOG"];

extensions! {
    /// A target: `-j NAME` with its options.
    enum Target;

    /// The names of all supported targets.
    NAMES;

    without_options {
    /// Accepts the packet.
    Accept = "ACCEPT",
    /// Drops the packet.
    Drop = "DROP",
    /// Disables connection tracking for the packet.
    Notrack = "NOTRACK",
    /// Returns to the calling chain, or applies the policy.
    Return = "RETURN",
    /// Traces the packet through all rules.
    Trace = "TRACE",
    }

    others {
        /// Jumps to a chain and returns after this rule.
        Jump(ChainName),
        /// Goes to a chain and returns after the last jump.
        Goto(ChainName),
        /// Unsupported text, from `-j` on.
        Other(Cow<'a, str>),
    }

    /// Creates audit records.
    Audit(Audit) = "AUDIT",
    /// Computes missing checksums.
    Checksum(Checksum) = "CHECKSUM",
    /// Sets the scheduling class.
    Classify(Classify) = "CLASSIFY",
    /// Changes or copies the connection mark.
    Connmark(Connmark) = "CONNMARK",
    /// Copies security marks.
    Connsecmark(Connsecmark) = "CONNSECMARK",
    /// Sets connection tracking parameters.
    Ct(Ct<'a>) = "CT",
    /// Changes the destination.
    Dnat(Dnat) = "DNAT",
    /// Translates the prefix of destination addresses.
    Dnpt(Dnpt) = "DNPT",
    /// Sets the differentiated services code point.
    Dscp(Dscp) = "DSCP",
    /// Removes explicit congestion notification.
    Ecn(Ecn) = "ECN",
    /// Changes the hop limit.
    Hl(Hl) = "HL",
    /// Sets the packet mark to a hash.
    Hmark(Hmark) = "HMARK",
    /// Notifies processes of idle interfaces.
    Idletimer(Idletimer<'a>) = "IDLETIMER",
    /// Switches an LED on.
    Led(Led<'a>) = "LED",
    /// Logs to the kernel log.
    Log(Log<'a>) = "LOG",
    /// Changes the packet mark.
    Mark(Mark) = "MARK",
    /// Changes the source to an address of the outgoing interface.
    Masquerade(Masquerade) = "MASQUERADE",
    /// Maps a network to another one.
    Netmap(Netmap) = "NETMAP",
    /// Logs to a netlink multicast group.
    Nflog(Nflog<'a>) = "NFLOG",
    /// Passes packets to a process.
    Nfqueue(Nfqueue) = "NFQUEUE",
    /// Estimates the rate of the packets.
    Rateest(Rateest<'a>) = "RATEEST",
    /// Changes the destination to this host.
    Redirect(Redirect) = "REDIRECT",
    /// Drops the packet and notifies its sender.
    Reject(Reject) = "REJECT",
    /// Sets the security mark.
    Secmark(Secmark<'a>) = "SECMARK",
    /// Adds or deletes IP set entries.
    Set(Set<'a>) = "SET",
    /// Changes the source.
    Snat(Snat) = "SNAT",
    /// Translates the prefix of source addresses.
    Snpt(Snpt) = "SNPT",
    /// Completes TCP handshakes.
    Synproxy(Synproxy) = "SYNPROXY",
    /// Changes the maximum segment size of TCP.
    Tcpmss(Tcpmss) = "TCPMSS",
    /// Removes TCP options.
    Tcpoptstrip(Tcpoptstrip) = "TCPOPTSTRIP",
    /// Sends a copy of the packet to a host.
    Tee(Tee<'a>) = "TEE",
    /// Changes the type of service.
    Tos(Tos) = "TOS",
    /// Redirects the packet unchanged to a local socket.
    Tproxy(Tproxy) = "TPROXY",
    /// Changes the time to live.
    Ttl(Ttl) = "TTL",
}

impl Target<'_> {
    /// Any other name is a chain name.
    fn open_other(name: &str) -> Option<Self> {
        if OTHERS.contains(&name) {
            return None;
        }
        ChainName::new(name).ok().map(Self::Jump)
    }

    fn fmt_other(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump(chain) => write!(f, "-j {chain}"),
            Self::Goto(chain) => write!(f, "-g {chain}"),
            Self::Other(text) => f.write_str(text),
            _ => write!(f, "-j {}", self.name().unwrap_or_default()),
        }
    }

    /// Rules contain verdicts and expressions for all other targets without options.
    fn encode_other(&self, context: Context<'_>) -> Option<Encoded> {
        match self {
            Self::Notrack => structure::encode(&Notrack, context),
            _ => None,
        }
    }

    fn decode_other(name: &str, revision: u32, bytes: &[u8], context: Context<'_>) -> Option<Self> {
        if name != Notrack::NAME {
            return None;
        }
        let found: Option<Notrack> = structure::decode(revision, bytes, context);
        found.map(|Notrack| Self::Notrack)
    }
}
