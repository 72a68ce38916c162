//! Targets: `-j NAME` with its options, jumps and gotos.
//!
//! The types are exhaustive, except [`Target`]: their fields are all options of the
//! extension in iptables 1.8. A target with another option is [`Target::Other`].

// Each extension is one file with its options, its text, the kernel's structure and its tests.
// `extensions/mod.rs` says how to add one.

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
use crate::extensions::structure::{self, Context, Encoded, Structure};

use self::ct::Notrack;

pub use nat::{AddressRange, NatPorts};

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
    audit: Audit(Audit) = "AUDIT",
    /// Computes missing checksums.
    checksum: Checksum(Checksum) = "CHECKSUM",
    /// Sets the scheduling class.
    classify: Classify(Classify) = "CLASSIFY",
    /// Changes or copies the connection mark.
    connmark: Connmark(Connmark) = "CONNMARK",
    /// Copies security marks.
    connsecmark: Connsecmark(Connsecmark) = "CONNSECMARK",
    /// Sets connection tracking parameters.
    ct: Ct(Ct<'a>) = "CT",
    /// Changes the destination.
    dnat: Dnat(Dnat) = "DNAT",
    /// Translates the prefix of destination addresses.
    dnpt: Dnpt(Dnpt) = "DNPT",
    /// Sets the differentiated services code point.
    dscp: Dscp(Dscp) = "DSCP",
    /// Removes explicit congestion notification.
    ecn: Ecn(Ecn) = "ECN",
    /// Changes the hop limit.
    hl: Hl(Hl) = "HL",
    /// Sets the packet mark to a hash.
    hmark: Hmark(Hmark) = "HMARK",
    /// Notifies processes of idle interfaces.
    idletimer: Idletimer(Idletimer<'a>) = "IDLETIMER",
    /// Switches an LED on.
    led: Led(Led<'a>) = "LED",
    /// Logs to the kernel log.
    log: Log(Log<'a>) = "LOG",
    /// Changes the packet mark.
    mark: Mark(Mark) = "MARK",
    /// Changes the source to an address of the outgoing interface.
    masquerade: Masquerade(Masquerade) = "MASQUERADE",
    /// Maps a network to another one.
    netmap: Netmap(Netmap) = "NETMAP",
    /// Logs to a netlink multicast group.
    nflog: Nflog(Nflog<'a>) = "NFLOG",
    /// Passes packets to a process.
    nfqueue: Nfqueue(Nfqueue) = "NFQUEUE",
    /// Estimates the rate of the packets.
    rateest: Rateest(Rateest<'a>) = "RATEEST",
    /// Changes the destination to this host.
    redirect: Redirect(Redirect) = "REDIRECT",
    /// Drops the packet and notifies its sender.
    reject: Reject(Reject) = "REJECT",
    /// Sets the security mark.
    secmark: Secmark(Secmark<'a>) = "SECMARK",
    /// Adds or deletes IP set entries.
    set: Set(Set<'a>) = "SET",
    /// Changes the source.
    snat: Snat(Snat) = "SNAT",
    /// Translates the prefix of source addresses.
    snpt: Snpt(Snpt) = "SNPT",
    /// Completes TCP handshakes.
    synproxy: Synproxy(Synproxy) = "SYNPROXY",
    /// Changes the maximum segment size of TCP.
    tcpmss: Tcpmss(Tcpmss) = "TCPMSS",
    /// Removes TCP options.
    tcpoptstrip: Tcpoptstrip(Tcpoptstrip) = "TCPOPTSTRIP",
    /// Sends a copy of the packet to a host.
    tee: Tee(Tee<'a>) = "TEE",
    /// Changes the type of service.
    tos: Tos(Tos) = "TOS",
    /// Redirects the packet unchanged to a local socket.
    tproxy: Tproxy(Tproxy) = "TPROXY",
    /// Changes the time to live.
    ttl: Ttl(Ttl) = "TTL",
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
