//! Ports on which load balancers ask whether a Service has endpoints here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use proxy_core::Family;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info};
use vipline_service_model::{NodePortAddresses, NodePortMatch, ObjectName};

use super::http::{Bounds, Request, Wildcard, listen, response, serve};
use super::{Tell, Trouble};
use crate::telemetry::{Judged, Telemetry};

/// What is told about the ports of Services.
pub(super) struct Ports {
    pub(super) telemetry: Telemetry,
    pub(super) judged: Judged,
    /// On which addresses they are.
    pub(super) addresses: NodePortAddresses,
    /// Tells the addresses of the interfaces.
    pub(super) interfaces: fn() -> Result<Vec<IpAddr>>,
    /// After which time what could not be opened is tried again, unless a sync
    /// ends before.
    pub(super) retry: Duration,
    pub(super) tell: Tell,
}

/// The ports there are.
#[derive(Default)]
struct Opened {
    /// On which addresses of a family they are, from the first use on.
    addresses: BTreeMap<Family, Vec<IpAddr>>,
    ports: BTreeMap<Key, Port>,
}

/// A Service in one family.
type Key = (Family, ObjectName);

/// The port of a Service.
struct Port {
    number: u16,
    state: State,
}

enum State {
    /// Questions are answered until this is dropped.
    Open { _open: watch::Sender<()> },
    /// It could not be opened, for a reason that was told.
    Failed(String),
}

impl Ports {
    /// Opens and closes ports as Services come and go.
    pub(super) async fn run(self) {
        let mut opened = Opened::default();
        let mut syncs = self.telemetry.syncs();
        loop {
            syncs.mark_unchanged();
            self.follow(&mut opened);
            let failed = |port: &Port| matches!(port.state, State::Failed(_));
            let has_failed = opened.ports.values().any(failed);
            tokio::select! {
                changed = syncs.changed() => if changed.is_err() { return },
                () = sleep(self.retry), if has_failed => {}
            }
        }
    }

    fn follow(&self, opened: &mut Opened) {
        let wanted: BTreeMap<Key, u16> = self.telemetry.services().into_iter().collect();
        opened.ports.retain(|key, port| {
            let stays = wanted.get(key) == Some(&port.number);
            if !stays {
                debug!(service = %key.1, port = port.number, "health check port closed");
            }
            stays
        });
        for (key, number) in wanted {
            let told = match opened.ports.get(&key).map(|port| &port.state) {
                Some(State::Open { .. }) => continue,
                Some(State::Failed(told)) => Some(told.as_str()),
                None => None,
            };
            let addresses = opened.addresses.entry(key.0);
            let addresses = addresses.or_insert_with(|| self.choose(key.0));
            let state = self.open(addresses, &key, number, told);
            opened.ports.insert(key, Port { number, state });
        }
    }

    /// Opens a port on all its addresses, or on none; tells what goes wrong,
    /// unless that was told.
    fn open(&self, addresses: &[IpAddr], key: &Key, number: u16, told: Option<&str>) -> State {
        let (family, name) = key;
        let mut listeners = Vec::new();
        for &address in addresses {
            let address = SocketAddr::new(address, number);
            match listen(address, Wildcard::Ipv6Only) {
                Ok(listener) => listeners.push(listener),
                Err(error) => {
                    let text = format!("health check port {address} of {name}: {error}");
                    if told != Some(&text) {
                        (self.tell)(Trouble::Service {
                            name: name.clone(),
                            text: text.clone(),
                        });
                    }
                    return State::Failed(text);
                }
            }
        }
        info!(service = %name, port = number, %family, "health check port open");
        let (open, watched) = watch::channel(());
        for listener in listeners {
            self.start(listener, key.clone(), watched.clone());
        }
        State::Open { _open: open }
    }

    fn start(&self, listener: TcpListener, key: Key, open: watch::Receiver<()>) {
        let (telemetry, judged) = (self.telemetry.clone(), self.judged);
        let answer = move |_: &Request| response(telemetry.service(key.0, &key.1, judged));
        tokio::spawn(serve(listener, Bounds::USUAL, answer, open));
    }

    /// Returns the addresses of a family that ports are opened on.
    fn choose(&self, family: Family) -> Vec<IpAddr> {
        let everywhere = match family {
            Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let node = self.telemetry.node();
        let filter = self.addresses.filter(family, &node.addresses);
        // Not to know one's addresses is no reason to be silent.
        match (self.interfaces)().map(|addresses| filter.choose(&addresses)) {
            Ok(NodePortMatch::Only(addresses)) => addresses,
            Ok(NodePortMatch::All) | Err(_) => vec![everywhere],
        }
    }
}
