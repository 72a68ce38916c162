//! Upstreams of a name: stub domains, order, and our own addresses.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, io};

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::BinEncodable;
use tracing::warn;

use super::error::ForwardError;
use super::exchange::random;
use super::options::{ForwardOptions, Policy, Upstreams};
use super::places::Places;
use super::query::suffixes;
use super::resolv_conf::ResolvConf;
use super::upstream::Upstream;

/// Time to wait for one reply, unless an option or `resolv.conf` states it.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Rounds over all upstreams, unless an option or `resolv.conf` states them.
const ATTEMPTS: u32 = 2;

/// Waiting clients of a set for each of its places.
const WAITING_PER_PLACE: usize = 8;

/// Upstreams of all names, and how to ask them.
#[derive(Debug)]
pub(super) struct Routes {
    /// Without upstreams if only names of stub domains have some.
    default: Set,
    /// Sets by domain, in wire format and lower case.
    stubs: HashMap<Box<[u8]>, Set>,
    /// Every upstream once.
    upstreams: HashMap<SocketAddr, Arc<Upstream>>,
    policy: Policy,
    pub(super) try_timeout: Duration,
    pub(super) attempts: u32,
}

/// Upstreams of one domain, and their limits. A set that is dead or slow takes nothing from
/// the names of other sets.
#[derive(Debug)]
pub(super) struct Set {
    upstreams: Vec<Arc<Upstream>>,
    /// Places of queries to the upstreams.
    pub(super) places: Arc<Places>,
    /// Places of clients that wait for one of the queries.
    pub(super) waiting: Arc<Places>,
}

impl Set {
    /// Creates a set, with the places of its predecessor if there is one.
    fn new(
        upstreams: Vec<Arc<Upstream>>,
        options: &ForwardOptions,
        previous: Option<&Self>,
    ) -> Self {
        let limit = options.max_concurrent;
        let (places, waiting) = match previous {
            Some(set) => (Arc::clone(&set.places), Arc::clone(&set.waiting)),
            None => {
                let waiting = limit.saturating_mul(WAITING_PER_PLACE);
                (Places::new(limit), Places::new(waiting))
            }
        };
        Self {
            upstreams,
            places,
            waiting,
        }
    }

    /// Returns whether all upstreams are down.
    pub(super) fn is_down(&self) -> bool {
        self.upstreams.iter().all(|upstream| upstream.is_down())
    }

    /// Returns the upstreams in the stated order.
    pub(super) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }
}

/// Content of the file with the upstreams, to find out whether it changed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Source {
    text: String,
}

impl Source {
    /// Reads the file with the upstreams, if there is one.
    ///
    /// # Errors
    ///
    /// [`ForwardError::ResolvConf`] if the file cannot be read.
    pub(super) fn read(options: &ForwardOptions) -> Result<Self, ForwardError> {
        let Upstreams::ResolvConf(path) = &options.upstreams else {
            return Ok(Self::default());
        };
        let error = |source| ForwardError::ResolvConf {
            path: path.clone(),
            source,
        };
        let text = read_lossy(path).map_err(error)?;
        Ok(Self { text })
    }
}

/// Reads a file. Bytes that are not UTF-8 can only be in comments.
fn read_lossy(path: &PathBuf) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

impl Routes {
    /// Creates the routes of `options`. Upstreams that `previous` has keep their state.
    ///
    /// # Errors
    ///
    /// - [`ForwardError::Loop`] if an option names an address of this process.
    /// - [`ForwardError::NoUpstream`] if no usable address is left, for all names or for a
    ///   stub domain.
    pub(super) fn new(
        options: &ForwardOptions,
        source: &Source,
        previous: Option<&Self>,
    ) -> Result<Self, ForwardError> {
        let mut pool = Pool {
            options,
            previous,
            upstreams: HashMap::new(),
        };
        let file = ResolvConf::parse(&source.text);
        let default = match &options.upstreams {
            Upstreams::ResolvConf(path) => {
                let origin = path.display().to_string();
                for address in &file.unusable {
                    warn!(
                        address,
                        origin, "name server skipped: not an IP address without a scope"
                    );
                }
                pool.foreign(&origin, &file.name_servers)?
            }
            Upstreams::Addresses(addresses) => pool.stated("option forward", addresses)?,
            Upstreams::None => Vec::new(),
        };
        let default = Set::new(default, options, previous.map(|routes| &routes.default));
        let mut stubs = HashMap::new();
        for stub in &options.stub_domains {
            let origin = format!("stub domain {}", stub.domain);
            let upstreams = pool.stated(&origin, &stub.upstreams)?;
            let domain = wire(&stub.domain);
            let previous = previous.and_then(|routes| routes.stubs.get(&domain));
            stubs.insert(domain, Set::new(upstreams, options, previous));
        }
        let policy = match options.policy {
            Policy::Random if file.rotate => Policy::RoundRobin,
            policy => policy,
        };
        Ok(Self {
            default,
            stubs,
            upstreams: pool.upstreams,
            policy,
            try_timeout: options.try_timeout.or(file.timeout).unwrap_or(TRY_TIMEOUT),
            attempts: options
                .attempts
                .or(file.attempts)
                .unwrap_or(ATTEMPTS)
                .max(1),
        })
    }

    /// Returns every upstream once.
    pub(super) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.values()
    }

    /// Returns the upstreams of a name in wire format and lower case, in the order in which
    /// a query tries them. Upstreams that are down are last.
    pub(super) fn order(&self, name: &[u8], turn: &AtomicUsize) -> Vec<Arc<Upstream>> {
        let mut order = self.set(name).upstreams.clone();
        match self.policy {
            Policy::Random => shuffle(&mut order),
            Policy::RoundRobin => {
                let turn = turn.fetch_add(1, Ordering::Relaxed) % order.len().max(1);
                order.rotate_left(turn);
            }
            Policy::Sequential => {}
        }
        // Stable: the order of the policy remains.
        order.sort_by_key(|upstream| upstream.is_down());
        order
    }

    /// Returns whether a name in wire format and lower case has upstreams.
    pub(super) fn has_upstreams(&self, name: &[u8]) -> bool {
        !self.set(name).upstreams.is_empty()
    }

    /// Returns the set of the longest stub domain that contains a name in wire format and
    /// lower case, or that of all other names.
    pub(super) fn set(&self, name: &[u8]) -> &Set {
        if self.stubs.is_empty() {
            return &self.default;
        }
        let stub = suffixes(name).find_map(|suffix| self.stubs.get(suffix));
        stub.unwrap_or(&self.default)
    }

    /// Returns all sets with their domains in wire format.
    pub(super) fn sets(&self) -> impl Iterator<Item = (&[u8], &Set)> {
        let stubs = self.stubs.iter().map(|(domain, set)| (&**domain, set));
        stubs.chain([(&b"\0"[..], &self.default)])
    }
}

/// Upstreams under construction.
struct Pool<'a> {
    options: &'a ForwardOptions,
    previous: Option<&'a Routes>,
    upstreams: HashMap<SocketAddr, Arc<Upstream>>,
}

impl Pool<'_> {
    /// Returns the upstreams with addresses of a file, without our own addresses.
    fn foreign(
        &mut self,
        origin: &str,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Arc<Upstream>>, ForwardError> {
        let (skipped, foreign) = addresses
            .iter()
            .copied()
            .partition::<Vec<_>, _>(|&address| is_served_here(address, &self.options.listen));
        if foreign.is_empty() {
            return Err(ForwardError::NoUpstream {
                origin: origin.into(),
                skipped,
            });
        }
        for address in skipped {
            warn!(%address, origin, "name server skipped: this process serves on its address");
        }
        Ok(foreign
            .into_iter()
            .map(|address| self.upstream(address))
            .collect())
    }

    /// Returns the upstreams with addresses of an option.
    fn stated(
        &mut self,
        origin: &str,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Arc<Upstream>>, ForwardError> {
        let origin = origin.to_owned();
        for &address in addresses {
            if is_served_here(address, &self.options.listen) {
                return Err(ForwardError::Loop { origin, address });
            }
        }
        if addresses.is_empty() {
            return Err(ForwardError::NoUpstream {
                origin,
                skipped: Vec::new(),
            });
        }
        Ok(addresses
            .iter()
            .map(|&address| self.upstream(address))
            .collect())
    }

    fn upstream(&mut self, address: SocketAddr) -> Arc<Upstream> {
        let create = || {
            let known = self
                .previous
                .and_then(|previous| previous.upstreams.get(&address));
            known.map_or_else(
                || Arc::new(Upstream::new(address, self.options)),
                Arc::clone,
            )
        };
        Arc::clone(self.upstreams.entry(address).or_insert_with(create))
    }
}

/// Returns whether this process serves on an address.
///
/// A socket on an unspecified address serves all addresses of its family in the network
/// namespace.
fn is_served_here(address: SocketAddr, listen: &[SocketAddr]) -> bool {
    let ip = address.ip().to_canonical();
    listen
        .iter()
        .filter(|own| own.port() == address.port())
        .any(|own| {
            let own = own.ip().to_canonical();
            let serves_family = own.is_unspecified() && own.is_ipv4() == ip.is_ipv4();
            own == ip || (serves_family && is_local(address))
        })
}

/// Returns whether an address belongs to this network namespace: the kernel uses the
/// destination as the source only if the destination is local. All of 127.0.0.0/8 is
/// local, and its source is 127.0.0.1.
fn is_local(address: SocketAddr) -> bool {
    if address.ip().is_loopback() {
        return true;
    }
    let any = match address {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address.ip())
}

fn wire(domain: &Name) -> Box<[u8]> {
    // A name that was parsed can be encoded.
    domain.to_lowercase().to_bytes().unwrap_or_default().into()
}

fn shuffle<T>(items: &mut [T]) {
    for len in (2..=items.len()).rev() {
        let mut bytes = [0; 8];
        // Without randomness the stated order remains.
        if random(&mut bytes).is_err() {
            return;
        }
        let other = usize::from_le_bytes(bytes) % len;
        items.swap(len - 1, other);
    }
}

#[cfg(test)]
mod tests;
