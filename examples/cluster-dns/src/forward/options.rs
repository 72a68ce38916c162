//! Options of forwarding and of the cache.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hickory_proto::rr::Name;

use super::error::ForwardError;

/// Port of name servers without a stated port.
const DNS_PORT: u16 = 53;

/// Options of a [`Forwarder`](super::Forwarder).
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// Name servers of all names outside of the stub domains.
    /// Default: those of `/etc/resolv.conf`.
    pub upstreams: Upstreams,
    /// Domains with name servers of their own. The longest domain that contains a name
    /// applies. Default: none.
    pub stub_domains: Vec<StubDomain>,
    /// Addresses on which this process serves DNS. They are never upstreams.
    /// Default: none.
    pub listen: Vec<SocketAddr>,
    /// Order of the upstreams of a query. Default: [`Policy::Random`].
    pub policy: Policy,
    /// Time to wait for one answer of one upstream. Default: `options timeout` of
    /// `resolv.conf`, or 2 s.
    pub try_timeout: Option<Duration>,
    /// Rounds over all upstreams. Default: `options attempts` of `resolv.conf`, or 2.
    pub attempts: Option<u32>,
    /// Time in which a query ends, over all upstreams and rounds. Default: 5 s.
    pub deadline: Duration,
    /// Queries at the same time to the upstreams of one stub domain, or to those of all
    /// other names, and 8 times as many waiting clients. Further queries are refused, unless
    /// another client has more of them. 0 means unlimited. Default: 1,000.
    pub max_concurrent: usize,
    /// Consecutive failures after which an upstream counts as down. An upstream that is
    /// down is tried last. 0 means never. Default: 2.
    pub max_fails: u32,
    /// Interval of health checks of a failed upstream. Default: 500 ms.
    pub health_check: Duration,
    /// Whether queries use TCP only. Default: false.
    pub force_tcp: bool,
    /// Time after which an idle TCP connection is closed. Default: 10 s.
    pub idle_timeout: Duration,
    /// EDNS buffer size that is announced to upstreams, in bytes, and the limit of answers
    /// over UDP. Default: 1,232.
    pub udp_payload_size: u16,
    /// Interval at which `resolv.conf` is read again. Default: 5 s.
    pub reload: Duration,
    /// Options of the cache.
    pub cache: CacheOptions,
}

impl Default for ForwardOptions {
    fn default() -> Self {
        Self {
            upstreams: Upstreams::default(),
            stub_domains: Vec::new(),
            listen: Vec::new(),
            policy: Policy::default(),
            try_timeout: None,
            attempts: None,
            deadline: Duration::from_secs(5),
            max_concurrent: 1_000,
            max_fails: 2,
            health_check: Duration::from_millis(500),
            force_tcp: false,
            idle_timeout: Duration::from_secs(10),
            udp_payload_size: 1_232,
            reload: Duration::from_secs(5),
            cache: CacheOptions::default(),
        }
    }
}

/// Source of the upstreams' addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Upstreams {
    /// The `nameserver` lines of a file in the format of resolv.conf(5), which is read
    /// again after a change. The file's options `timeout`, `attempts` and `rotate` apply.
    ResolvConf(PathBuf),
    /// Constant addresses.
    Addresses(Vec<SocketAddr>),
    /// No name server: only names of stub domains have upstreams.
    None,
}

impl Default for Upstreams {
    fn default() -> Self {
        Self::ResolvConf(PathBuf::from("/etc/resolv.conf"))
    }
}

/// Order in which the upstreams of a query are tried.
///
/// `options rotate` of `resolv.conf` replaces [`Random`](Self::Random) by
/// [`RoundRobin`](Self::RoundRobin).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Policy {
    /// A random order for each query.
    #[default]
    Random,
    /// Each query begins with the next upstream.
    RoundRobin,
    /// All queries use the stated order.
    Sequential,
}

impl FromStr for Policy {
    type Err = ForwardError;

    /// Parses `random`, `round_robin` or `sequential`.
    fn from_str(text: &str) -> Result<Self, ForwardError> {
        match text {
            "random" => Ok(Self::Random),
            "round_robin" => Ok(Self::RoundRobin),
            "sequential" => Ok(Self::Sequential),
            _ => Err(ForwardError::Policy { text: text.into() }),
        }
    }
}

/// A domain whose names are forwarded to name servers of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StubDomain {
    /// The domain. Names that are equal to the domain or below it match.
    pub domain: Name,
    /// Name servers of the domain.
    pub upstreams: Vec<SocketAddr>,
}

impl FromStr for StubDomain {
    type Err = ForwardError;

    /// Parses `DOMAIN=ADDRESS[:PORT][,ADDRESS[:PORT]…]`.
    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let error = || ForwardError::StubDomain { text: text.into() };
        let (domain, addresses) = text.split_once('=').ok_or_else(error)?;
        let mut domain = Name::from_ascii(domain).map_err(|_| error())?;
        domain.set_fqdn(true);
        let upstreams = addresses
            .split(',')
            .map(|address| parse_upstream(address.trim()))
            .collect::<Result<_, _>>()?;
        Ok(Self { domain, upstreams })
    }
}

/// Options of the cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Positive answers that fit into the cache. 0 disables their caching.
    /// Default: 10,000.
    pub success_capacity: usize,
    /// Negative answers and failures that fit into the cache. 0 disables their caching.
    /// Default: 10,000.
    pub denial_capacity: usize,
    /// Bytes of all positive answers, and of all negative ones, with their keys.
    /// Default: 8 MiB of each kind.
    pub memory: usize,
    /// Shortest time to cache a positive answer. Shorter TTLs are raised. Default: 5 s.
    pub min_success_ttl: Duration,
    /// Longest time to cache a positive answer. Longer TTLs are lowered. Default:
    /// 30 s, as in kubeadm's configuration of CoreDNS.
    pub max_success_ttl: Duration,
    /// Shortest time to cache a negative answer. Default: 5 s.
    pub min_denial_ttl: Duration,
    /// Longest time to cache a negative answer. Default: 30 s.
    pub max_denial_ttl: Duration,
    /// Time to cache an error of an upstream, at most 5 s. If no upstream responds, the
    /// failure is cached for 1 s at most. 0 disables both. Default: 5 s.
    pub servfail_ttl: Duration,
    /// Hits of an entry since its last refresh that make a prefetch worthwhile. 0 disables
    /// prefetches. Default: 3.
    pub prefetch_hits: u32,
    /// Remaining part of the TTL at which an entry is prefetched, in percent, and at least
    /// one second. Default: 10.
    pub prefetch_percent: u32,
    /// Time after the end of its TTL during which an entry may be served if the upstreams
    /// fail. 0 disables stale answers. Default: 1 h.
    pub stale: Duration,
    /// TTL of records in stale answers, at most 30 s. Default: 30 s.
    pub stale_ttl: Duration,
    /// Time that a query waits for the upstreams before it gets a stale answer.
    /// Default: 1.8 s.
    pub stale_wait: Duration,
    /// Time between two refreshes of a stale entry that the upstreams failed to refresh.
    /// Default: 5 s.
    pub stale_recheck: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            success_capacity: 10_000,
            denial_capacity: 10_000,
            memory: 8 << 20,
            min_success_ttl: Duration::from_secs(5),
            max_success_ttl: Duration::from_secs(30),
            min_denial_ttl: Duration::from_secs(5),
            max_denial_ttl: Duration::from_secs(30),
            servfail_ttl: Duration::from_secs(5),
            prefetch_hits: 3,
            prefetch_percent: 10,
            stale: Duration::from_secs(3_600),
            stale_ttl: Duration::from_secs(30),
            stale_wait: Duration::from_millis(1_800),
            stale_recheck: Duration::from_secs(5),
        }
    }
}

/// Parses `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT` of a name server.
///
/// # Errors
///
/// [`ForwardError::Address`] if `text` has another form, or if the address is unspecified or
/// multicast, or if the port is 0.
pub fn parse_upstream(text: &str) -> Result<SocketAddr, ForwardError> {
    let address = text
        .parse::<SocketAddr>()
        .or_else(|_| {
            text.parse::<IpAddr>()
                .map(|ip| SocketAddr::new(ip, DNS_PORT))
        })
        .map_err(|_| ForwardError::Address { text: text.into() })?;
    if is_upstream(address) {
        Ok(address)
    } else {
        Err(ForwardError::Address { text: text.into() })
    }
}

/// Returns whether a name server can have this address.
pub(super) fn is_upstream(address: SocketAddr) -> bool {
    !address.ip().is_unspecified() && !address.ip().is_multicast() && address.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_has_port_53() {
        assert_eq!(
            parse_upstream("10.0.0.1").unwrap(),
            "10.0.0.1:53".parse().unwrap()
        );
        assert_eq!(
            parse_upstream("fd00::1").unwrap(),
            "[fd00::1]:53".parse().unwrap()
        );
        assert_eq!(
            parse_upstream("[fd00::1]:5353").unwrap(),
            "[fd00::1]:5353".parse().unwrap()
        );
        assert_eq!(parse_upstream("10.0.0.1:5353").unwrap().port(), 5353);
    }

    #[test]
    fn an_address_that_cannot_be_a_name_server_is_an_error() {
        for text in [
            "",
            "dns.example",
            "10.0.0.1:0",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "10.0.0.1:65536",
        ] {
            let error = parse_upstream(text).unwrap_err();
            assert!(
                matches!(error, ForwardError::Address { .. }),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_stub_domain_has_several_upstreams() {
        let stub = "corp.example=10.0.0.1,[fd00::1]:5353"
            .parse::<StubDomain>()
            .unwrap();
        assert_eq!(stub.domain, Name::from_ascii("corp.example.").unwrap());
        assert_eq!(stub.upstreams.len(), 2);
        for text in [
            "corp.example",
            "corp.example=",
            "=10.0.0.1,",
            "a..b=10.0.0.1",
        ] {
            assert!(text.parse::<StubDomain>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_policy_is_parsed_from_its_name() {
        assert_eq!("round_robin".parse::<Policy>().unwrap(), Policy::RoundRobin);
        assert!("fastest".parse::<Policy>().is_err());
    }
}
