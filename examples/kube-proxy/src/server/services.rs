//! Health check node ports of Services (`healthCheckNodePort`).
//!
//! A listener belongs to a port number, and the number to a Service. So a
//! number that moves from one Service to another keeps its listener.

use std::collections::BTreeMap;
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use proxy_core::Family;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{debug, info, warn};
use vipline_service_model::{NodePortAddresses, NodePortMatch, ObjectName};

use super::pages::response;
use super::{ListenFailure, OnFailure};
use crate::logging::ROUTINE;
use crate::telemetry::{ProxyHealth, Telemetry};
use daemon::http::{Connections, Request, Timeouts, Wildcard, listen, serve};
use daemon::log_limit;

/// Settings of the health check node ports.
pub(super) struct Ports {
    pub(super) telemetry: Telemetry,
    pub(super) proxy_health: ProxyHealth,
    /// Addresses of the listeners.
    pub(super) addresses: NodePortAddresses,
    /// Returns the addresses of the interfaces.
    pub(super) interfaces: fn() -> Result<Vec<IpAddr>>,
    /// Time until a failed listener is retried, unless a sync ends before.
    pub(super) retry: Duration,
    /// Limits on connections to all ports.
    pub(super) connections: Connections,
    /// Maximum number of listeners. Each address of each port has a listener.
    pub(super) max_listeners: usize,
    pub(super) on_failure: OnFailure,
}

/// State of all ports.
#[derive(Default)]
struct OpenPorts {
    /// Listener addresses of a family, determined at the first use.
    addresses: BTreeMap<Family, Vec<IpAddr>>,
    ports: BTreeMap<Number, Port>,
    /// Services whose port number belongs to another Service.
    conflicts: BTreeMap<Key, Conflict>,
}

/// A Service in one family.
type Key = (Family, ObjectName);

/// A port number in one family.
type Number = (Family, u16);

/// A port that is open or has failed to open.
struct Port {
    /// The Service that responses describe.
    service: Arc<Mutex<ObjectName>>,
    state: State,
}

enum State {
    Open {
        /// Closes the listeners when dropped.
        open: watch::Sender<()>,
        listeners: Vec<JoinHandle<()>>,
    },
    /// The port could not be opened, for the reason `text`. `reported` is the
    /// Service that got the Event.
    Failed { reported: ObjectName, text: String },
}

/// A Service whose port number belongs to another Service.
struct Conflict {
    number: u16,
    since: Instant,
    is_reported: bool,
}

impl Ports {
    /// Opens and closes ports after each sync.
    pub(super) async fn run(self) {
        let mut ports = OpenPorts::default();
        let mut syncs = self.telemetry.syncs();
        loop {
            syncs.mark_unchanged();
            self.update(&mut ports).await;
            tokio::select! {
                changed = syncs.changed() => if changed.is_err() { return },
                () = sleep(self.retry), if ports.is_incomplete() => {}
            }
        }
    }

    async fn update(&self, ports: &mut OpenPorts) {
        let mut wanted: BTreeMap<Number, Vec<ObjectName>> = BTreeMap::new();
        for ((family, name), number) in self.telemetry.services() {
            wanted.entry((family, number)).or_default().push(name);
        }
        ports.close_unwanted(&wanted).await;
        let (mut losers, mut failures) = (Vec::new(), Vec::new());
        for (number, mut services) in wanted {
            let owner = ports.owner(number, &services);
            let owner = services.swap_remove(owner);
            losers.extend(services.into_iter().map(|loser| (number, loser)));
            failures.extend(self.assign(ports, number, owner));
        }
        failures.extend(self.conflicts(ports, losers));
        let texts = failures.iter().map(ListenFailure::text);
        log_limit::each("failures of health check ports", texts, |text| {
            warn!("{text}")
        });
        failures.into_iter().for_each(|it| (self.on_failure)(it));
    }

    /// Assigns a port to a Service. Opens the port if it is not open. Returns a new failure.
    fn assign(
        &self,
        ports: &mut OpenPorts,
        number: Number,
        owner: ObjectName,
    ) -> Option<ListenFailure> {
        let reported = match ports.ports.get(&number) {
            Some(port @ Port { state, .. }) => match state {
                State::Open { .. } => {
                    port.set_service(owner);
                    return None;
                }
                State::Failed { reported, text } => (*reported == owner).then(|| text.clone()),
            },
            None => None,
        };
        let addresses = ports.addresses.entry(number.0);
        let addresses = addresses.or_insert_with(|| self.choose(number.0)).clone();
        let left = self.max_listeners.saturating_sub(ports.listeners());
        let service = Arc::new(Mutex::new(owner.clone()));
        let (state, failure) = match self.open(&addresses, number, &service, left) {
            Ok(state) => (state, None),
            Err(text) => {
                let is_new = reported.as_ref() != Some(&text);
                let failure = is_new.then(|| failure(&owner, text.clone()));
                let reported = owner;
                (State::Failed { reported, text }, failure)
            }
        };
        ports.ports.insert(number, Port { service, state });
        failure
    }

    /// Opens a port on all addresses, or on none.
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
        info!(target: ROUTINE, service = %name, port = number, %family, "health check port open");
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
        let (telemetry, proxy_health) = (self.telemetry.clone(), self.proxy_health);
        let answer = move |_: Request| {
            let name = unpoisoned(&service).clone();
            ready(response(telemetry.service(family, &name, proxy_health)))
        };
        let connections = self.connections.clone();
        tokio::spawn(serve(
            listener,
            connections,
            Timeouts::DEFAULT,
            answer,
            open,
        ))
    }

    /// Returns a failure for each Service whose port has belonged to another Service for
    /// the retry interval, once.
    ///
    /// A port that moves may belong to both Services for a short time.
    fn conflicts(
        &self,
        ports: &mut OpenPorts,
        losers: Vec<(Number, ObjectName)>,
    ) -> Vec<ListenFailure> {
        let now = Instant::now();
        let mut failures = Vec::new();
        let mut before = std::mem::take(&mut ports.conflicts);
        for ((family, number), loser) in losers {
            let key = (family, loser);
            let known = before.remove(&key).filter(|known| known.number == number);
            let mut conflict = known.unwrap_or(Conflict {
                number,
                since: now,
                is_reported: false,
            });
            if !conflict.is_reported && now - conflict.since >= self.retry {
                conflict.is_reported = true;
                let owner = ports.ports.get(&(family, number));
                let owner = owner.map_or_else(String::new, |port| port.service().to_string());
                let loser = &key.1;
                let text = format!(
                    "health check port {number} of {loser}: the port belongs to Service {owner}"
                );
                failures.push(failure(loser, text));
            }
            ports.conflicts.insert(key, conflict);
        }
        failures
    }

    /// Returns the listener addresses of a family.
    fn choose(&self, family: Family) -> Vec<IpAddr> {
        let everywhere = match family {
            Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let node = self.telemetry.node();
        let filter = self.addresses.filter(family, &node.addresses);
        // Without the interface addresses, ports open on all addresses.
        match (self.interfaces)().map(|addresses| filter.choose(&addresses)) {
            Ok(NodePortMatch::Only(addresses)) => addresses,
            Ok(NodePortMatch::All) | Err(_) => vec![everywhere],
        }
    }
}

impl OpenPorts {
    /// Returns whether a retry is pending: a port is not open, or a conflict is
    /// not reported.
    fn is_incomplete(&self) -> bool {
        let failed = |port: &Port| matches!(port.state, State::Failed { .. });
        let unreported = |conflict: &Conflict| !conflict.is_reported;
        self.ports.values().any(failed) || self.conflicts.values().any(unreported)
    }

    /// Returns the number of open listeners.
    fn listeners(&self) -> usize {
        let open = self.ports.values().map(|port| match &port.state {
            State::Open { listeners, .. } => listeners.len(),
            State::Failed { .. } => 0,
        });
        open.sum()
    }

    /// Closes ports that no Service names. On return the numbers can be bound
    /// again.
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
                    // The task drops its socket when it runs next.
                    let _ = listener.await;
                }
            }
        }
    }

    /// Returns the index of the Service that gets a port: the current owner,
    /// otherwise the first.
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
            info!(target: ROUTINE, from_service = %present, to_service = %service, "health check port moved");
            *present = service;
        }
    }
}

fn failure(name: &ObjectName, text: String) -> ListenFailure {
    let name = name.clone();
    ListenFailure::Service { name, text }
}

/// Locks the name even after a panic of another holder: the name is always
/// complete.
fn unpoisoned(service: &Mutex<ObjectName>) -> MutexGuard<'_, ObjectName> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
