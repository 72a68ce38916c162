//! Ports on which load balancers ask whether a Service has endpoints here.
//!
//! A listener belongs to a port number, and the number to a Service.
//! So a number that moves from one Service to another keeps its listener.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use proxy_core::Family;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{debug, info};
use vipline_service_model::{NodePortAddresses, NodePortMatch, ObjectName};

use super::http::{Connections, Request, Timeouts, Wildcard, listen, response, serve};
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
    /// Connections to all ports.
    pub(super) connections: Connections,
    /// Maximum number of listeners, one for each address of each port.
    pub(super) max_listeners: usize,
    pub(super) tell: Tell,
}

/// The ports there are.
#[derive(Default)]
struct Opened {
    /// On which addresses of a family they are, from the first use on.
    addresses: BTreeMap<Family, Vec<IpAddr>>,
    ports: BTreeMap<Number, Port>,
    /// Services that name a port of another Service.
    conflicts: BTreeMap<Key, Conflict>,
}

/// A Service in one family.
type Key = (Family, ObjectName);

/// A port number in one family.
type Number = (Family, u16);

/// A port that is open, or cannot be opened.
struct Port {
    /// The Service that answers are about.
    service: Arc<Mutex<ObjectName>>,
    state: State,
}

enum State {
    Open {
        /// Dropping it ends the listeners.
        open: watch::Sender<()>,
        listeners: Vec<JoinHandle<()>>,
    },
    /// It could not be opened; `told` is the Service whose Event has the reason.
    Failed { told: ObjectName, text: String },
}

/// A Service that names a port of another Service.
struct Conflict {
    number: u16,
    since: Instant,
    is_told: bool,
}

impl Ports {
    /// Opens and closes ports as Services come and go.
    pub(super) async fn run(self) {
        let mut opened = Opened::default();
        let mut syncs = self.telemetry.syncs();
        loop {
            syncs.mark_unchanged();
            self.follow(&mut opened).await;
            tokio::select! {
                changed = syncs.changed() => if changed.is_err() { return },
                () = sleep(self.retry), if opened.is_incomplete() => {}
            }
        }
    }

    async fn follow(&self, opened: &mut Opened) {
        let mut wanted: BTreeMap<Number, Vec<ObjectName>> = BTreeMap::new();
        for ((family, name), number) in self.telemetry.services() {
            wanted.entry((family, number)).or_default().push(name);
        }
        opened.close_unwanted(&wanted).await;
        let mut losers = Vec::new();
        for (number, mut services) in wanted {
            let owner = opened.owner(number, &services);
            let owner = services.swap_remove(owner);
            losers.extend(services.into_iter().map(|loser| (number, loser)));
            self.give(opened, number, owner);
        }
        self.judge(opened, losers);
    }

    /// Gives a port to a Service: opens it, or changes the Service of an open one.
    fn give(&self, opened: &mut Opened, number: Number, owner: ObjectName) {
        let told = match opened.ports.get(&number) {
            Some(port @ Port { state, .. }) => match state {
                State::Open { .. } => return port.set_service(owner),
                State::Failed { told, text } => (*told == owner).then(|| text.clone()),
            },
            None => None,
        };
        let addresses = opened.addresses.entry(number.0);
        let addresses = addresses.or_insert_with(|| self.choose(number.0)).clone();
        let left = self.max_listeners.saturating_sub(opened.listeners());
        let service = Arc::new(Mutex::new(owner.clone()));
        let state = match self.open(&addresses, number, &service, left) {
            Ok(state) => state,
            Err(text) => {
                if told.as_ref() != Some(&text) {
                    self.tell(&owner, text.clone());
                }
                State::Failed { told: owner, text }
            }
        };
        opened.ports.insert(number, Port { service, state });
    }

    /// Opens a port on all its addresses, or on none.
    fn open(
        &self,
        addresses: &[IpAddr],
        (family, number): Number,
        service: &Arc<Mutex<ObjectName>>,
        left: usize,
    ) -> Result<State, String> {
        let name = unpoisoned(service).clone();
        if addresses.len() > left {
            let limit = self.max_listeners;
            return Err(format!(
                "health check port {number} of {name}: \
                 all {limit} listeners that RLIMIT_NOFILE has room for are in use"
            ));
        }
        let mut listeners = Vec::new();
        for &address in addresses {
            let address = SocketAddr::new(address, number);
            let listener = listen(address, Wildcard::OwnFamily);
            listeners.push(
                listener
                    .map_err(|error| format!("health check port {address} of {name}: {error}"))?,
            );
        }
        info!(service = %name, port = number, %family, "health check port open");
        let (open, watched) = watch::channel(());
        let listeners = listeners
            .into_iter()
            .map(|listener| self.start(listener, family, Arc::clone(service), watched.clone()))
            .collect();
        Ok(State::Open { open, listeners })
    }

    fn start(
        &self,
        listener: TcpListener,
        family: Family,
        service: Arc<Mutex<ObjectName>>,
        open: watch::Receiver<()>,
    ) -> JoinHandle<()> {
        let (telemetry, judged) = (self.telemetry.clone(), self.judged);
        let answer = move |_: &Request| {
            let name = unpoisoned(&service).clone();
            response(telemetry.service(family, &name, judged))
        };
        let connections = self.connections.clone();
        tokio::spawn(serve(listener, connections, Timeouts::USUAL, answer, open))
    }

    /// Reports Services whose port has belonged to another Service for the time of a retry.
    ///
    /// A port that moves may belong to both Services for a moment.
    fn judge(&self, opened: &mut Opened, losers: Vec<(Number, ObjectName)>) {
        let now = Instant::now();
        let mut before = std::mem::take(&mut opened.conflicts);
        for ((family, number), loser) in losers {
            let key = (family, loser);
            let known = before.remove(&key).filter(|known| known.number == number);
            let mut conflict = known.unwrap_or(Conflict {
                number,
                since: now,
                is_told: false,
            });
            if !conflict.is_told && now - conflict.since >= self.retry {
                conflict.is_told = true;
                let owner = opened.ports.get(&(family, number));
                let owner = owner.map_or_else(String::new, |port| port.service().to_string());
                let loser = &key.1;
                let text = format!("health check port {number} of {loser}: Service {owner} has it");
                self.tell(loser, text);
            }
            opened.conflicts.insert(key, conflict);
        }
    }

    fn tell(&self, name: &ObjectName, text: String) {
        let name = name.clone();
        (self.tell)(Trouble::Service { name, text });
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

impl Opened {
    /// Returns whether a retry is due: a port is not open, or a conflict was not reported yet.
    fn is_incomplete(&self) -> bool {
        let failed = |port: &Port| matches!(port.state, State::Failed { .. });
        let untold = |conflict: &Conflict| !conflict.is_told;
        self.ports.values().any(failed) || self.conflicts.values().any(untold)
    }

    /// Returns the number of open listeners.
    fn listeners(&self) -> usize {
        let open = self.ports.values().map(|port| match &port.state {
            State::Open { listeners, .. } => listeners.len(),
            State::Failed { .. } => 0,
        });
        open.sum()
    }

    /// Closes ports that no Service has any more.
    ///
    /// Their numbers can be bound again when it returns.
    async fn close_unwanted(&mut self, wanted: &BTreeMap<Number, Vec<ObjectName>>) {
        let unwanted: Vec<_> = self
            .ports
            .keys()
            .filter(|number| !wanted.contains_key(number))
            .copied()
            .collect();
        for number in unwanted {
            let Some(port) = self.ports.remove(&number) else {
                continue;
            };
            debug!(service = %port.service(), port = number.1, "health check port closed");
            if let State::Open { open, listeners } = port.state {
                drop(open);
                for listener in listeners {
                    // It drops its socket as soon as it runs.
                    let _ = listener.await;
                }
            }
        }
    }

    /// Returns the index of the Service that gets a port: its present one, or the first.
    fn owner(&self, number: Number, services: &[ObjectName]) -> usize {
        let present = self.ports.get(&number).map(|port| port.service().clone());
        let index = services
            .iter()
            .position(|service| Some(service) == present.as_ref());
        index.unwrap_or(0)
    }
}

impl Port {
    fn service(&self) -> MutexGuard<'_, ObjectName> {
        unpoisoned(&self.service)
    }

    fn set_service(&self, service: ObjectName) {
        let mut present = self.service();
        if *present != service {
            info!(from = %present, to = %service, "health check port moved");
            *present = service;
        }
    }
}

/// Locks also after a panic: a name is always whole.
fn unpoisoned(service: &Mutex<ObjectName>) -> MutexGuard<'_, ObjectName> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
