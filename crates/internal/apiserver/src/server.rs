//! A server, and what a test may do to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use axum::Router;
use axum::serve;
use serde_json::Value;
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::faults::{Ending, Faults};
use crate::kind::Kind;
use crate::kubeconfig;
use crate::listener::{self, Listen, Order, Peer};
use crate::random::Random;
use crate::requests::Request;
use crate::routes;
use crate::state::State;
use crate::store::{Key, Store};
use crate::tls::Certificates;
use crate::tls_terminator::TlsTerminator;

/// How often a condition is looked at that somebody waits for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A server that runs until it is dropped.
///
/// All methods may be called from any thread and namespace; none waits for a
/// client, but those that say so.
#[derive(Debug)]
pub struct ApiServer {
    state: Arc<State>,
    address: SocketAddr,
    certificates: Certificates,
    orders: UnboundedSender<Order>,
    /// Ends the server when dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts one on a free port of 127.0.0.1.
    ///
    /// It is in the network namespace of the calling thread.
    ///
    /// # Panics
    ///
    /// When it cannot listen there.
    pub fn start() -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts one at an address.
    ///
    /// # Panics
    ///
    /// When it cannot listen there.
    pub fn start_at(address: SocketAddr) -> Self {
        let seed = u64::from(std::process::id()) << 32 | u64::from(address.port());
        let token = format!("token-{:016x}", Random::new(seed).next());
        let state = Arc::new(State::new(token));
        let certificates = Certificates::new(address.ip());
        let tls = TlsAcceptor::from(Arc::clone(&certificates.config));
        let (stop, stopped) = oneshot::channel();
        let (orders, ordered) = unbounded_channel();
        let (bound, binding) = mpsc::channel();
        let served = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("apiserver".into())
            .spawn(move || run(address, &bound, tls, served, ordered, stopped))
            .expect("there can be one more thread");
        let address = binding
            .recv()
            .expect("the thread says where it listens")
            .unwrap_or_else(|error| panic!("listen on {address}: {error}"));
        Self {
            state,
            address,
            certificates,
            orders,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its address as clients have it: `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the certificate that signed its own, as PEM.
    pub fn authority(&self) -> &str {
        &self.certificates.authority
    }

    /// Returns a kubeconfig with a client certificate.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::kubeconfig(self.address, &self.certificates, None)
    }

    /// Returns a kubeconfig with the token of now.
    pub fn kubeconfig_with_token(&self) -> String {
        let token = self.state.token();
        kubeconfig::kubeconfig(self.address, &self.certificates, Some(&token))
    }

    /// Starts a TLS endpoint with the certificate of the server, which forwards
    /// connections to `target`.
    ///
    /// It listens on the address of `target`, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    ///
    /// The endpoint cannot listen there.
    pub fn terminate_tls(&self, target: SocketAddr) -> io::Result<TlsTerminator> {
        TlsTerminator::start(Arc::clone(&self.certificates.config), target)
    }

    /// Writes `token`, `ca.crt` and `namespace`, as a pod finds them.
    ///
    /// # Errors
    ///
    /// What writing says.
    pub fn write_in_cluster(&self, directory: &Path) -> io::Result<()> {
        kubeconfig::in_cluster(directory, &self.certificates, &self.state.token())
    }

    /// Has another token from now on; the old one is worth nothing any more.
    pub fn set_token(&self, token: &str) {
        self.state.set_token(token);
    }

    /// Creates or replaces an object, and returns its version.
    ///
    /// One without a namespace is in `default`, if its kind has namespaces.
    /// The same again is no change.
    ///
    /// # Panics
    ///
    /// When it is of no kind that is served, or has no name.
    pub fn apply(&self, object: Value) -> u64 {
        self.state.change(|store| put(store, object))
    }

    /// Creates or replaces many objects at once, and returns the last version.
    ///
    /// # Panics
    ///
    /// As [`apply`](Self::apply).
    pub fn apply_all(&self, objects: impl IntoIterator<Item = Value>) -> u64 {
        self.state.change(|store| {
            for object in objects {
                put(store, object);
            }
            store.version()
        })
    }

    /// Deletes an object, and tells whether it was there.
    ///
    /// # Panics
    ///
    /// When there is no such kind: `Service`, `EndpointSlice`, `Node`, …
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let (kind, key) = (known(None, kind), key(namespace, name));
        self.state
            .change(|store| store.remove(kind, &key))
            .is_some()
    }

    /// Returns an object, as it is now.
    ///
    /// # Panics
    ///
    /// When there is no such kind.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let (kind, key) = (known(None, kind), key(namespace, name));
        let object = self.state.store().get(kind, &key).cloned();
        object.map(|object| object.value().into())
    }

    /// Returns all objects of a kind, as they are now.
    ///
    /// # Panics
    ///
    /// When there is no such kind.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        self.objects_of(known(None, kind))
    }

    /// Returns all Events, the newer kind of them first.
    pub fn events(&self) -> Vec<Value> {
        let kinds = Kind::all().filter(|kind| kind.plural() == "events");
        kinds.flat_map(|kind| self.objects_of(kind)).collect()
    }

    /// Returns the version of the last change.
    pub fn resource_version(&self) -> u64 {
        self.state.store().version()
    }

    /// Returns what clients asked for so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests().clone()
    }

    /// Returns how often something was asked for: `list`, `services`.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let requests = self.state.requests();
        let asked = |request: &&Request| request.verb == verb && request.resource == resource;
        requests.iter().filter(asked).count()
    }

    /// Returns how many watches of a resource there are.
    pub fn watchers(&self, resource: &str) -> usize {
        self.state.watchers(Some(resource))
    }

    /// Waits until there are `number` watches, and tells whether there are.
    ///
    /// It blocks its thread, which the client must not need meanwhile.
    pub fn wait_for_watchers(&self, number: usize, timeout: Duration) -> bool {
        self.wait_until(timeout, |server| server.state.watchers(None) == number)
    }

    /// Waits until something holds, and tells whether it does.
    ///
    /// It blocks its thread, which the client must not need meanwhile.
    pub fn wait_until(&self, timeout: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + timeout;
        loop {
            if holds(self) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Changes what goes wrong.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.state.change_faults(change);
    }

    /// Lets everything that depends on chance depend on this.
    pub fn seed(&self, seed: u64) {
        self.state.with_random(|random| *random = Random::new(seed));
    }

    /// Cuts all connections, and returns how many there were.
    pub fn cut_connections(&self, ending: Ending) -> usize {
        self.state.cut(ending)
    }

    /// Stops reading and writing on all connections, or goes on.
    ///
    /// New ones are taken and hang as well.
    pub fn hang_connections(&self, hang: bool) {
        self.state.hang(hang);
    }

    /// Refuses new connections; the port stays the server's.
    pub fn refuse_connections(&self) {
        self.order(Listen::Refuse);
    }

    /// Takes connections again.
    pub fn accept_connections(&self) {
        self.order(Listen::Accept);
    }

    /// Sends all watches a bookmark that want some.
    pub fn send_bookmarks(&self) {
        self.state.ask_for_bookmarks();
    }

    /// Sends bookmarks so often, to watches that begin from now on.
    pub fn bookmark_every(&self, period: Duration) {
        self.state.set_bookmark_period(period);
    }

    /// Keeps at most so many changes of each kind.
    pub fn keep_history(&self, changes: usize) {
        self.state.change(|store| store.keep(changes));
    }

    /// Forgets the history: who comes back with an old version is told 410.
    pub fn compact(&self) {
        self.state.change(Store::compact);
    }

    /// Forgets the history, and ends all watches with 410.
    pub fn expire_watches(&self) {
        self.compact();
        self.state.expire();
    }

    /// Goes away and comes back after `away`, without any history.
    ///
    /// The counter of versions goes on after a jump.
    pub fn restart(&self, away: Duration, jump: u64) {
        self.refuse_connections();
        self.cut_connections(Ending::Close);
        self.state.change(|store| {
            // A version that was the newest is too old now, too.
            store.skip(jump.max(1));
            store.compact();
        });
        thread::sleep(away);
        self.accept_connections();
    }

    /// Has nothing go wrong any more.
    pub fn calm(&self) {
        self.faults(|faults| *faults = Faults::default());
        self.hang_connections(false);
        self.accept_connections();
    }

    fn order(&self, listen: Listen) {
        let (done, waiting) = mpsc::channel();
        let sent = self.orders.send((listen, done));
        sent.expect("the server runs as long as this lives");
        waiting.recv().expect("every order is answered");
    }

    fn objects_of(&self, kind: Kind) -> Vec<Value> {
        let objects: Vec<_> = {
            let store = self.state.store();
            store.table(kind).objects.values().cloned().collect()
        };
        objects.iter().map(|object| object.value().into()).collect()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop.take();
        // A panic in there has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Serves, on the calling thread alone.
fn run(
    address: SocketAddr,
    bound: &mpsc::Sender<io::Result<SocketAddr>>,
    tls: TlsAcceptor,
    state: Arc<State>,
    orders: UnboundedReceiver<Order>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs two file descriptors");
    runtime.block_on(async {
        let listener = match listener::bind(address) {
            Ok(listener) => listener,
            Err(error) => {
                let _ = bound.send(Err(error));
                return;
            }
        };
        let _ = bound.send(listener.local_addr());
        let accepted = listener::accept(listener, tls, Arc::clone(&state), orders);
        let app = Router::new().fallback(routes::answer).with_state(state);
        let service = app.into_make_service_with_connect_info::<Peer>();
        tokio::select! {
            _ = serve(accepted, service) => {}
            _ = stopped => {}
        }
    });
}

fn put(store: &mut Store, object: Value) -> u64 {
    let Value::Object(object) = object else {
        panic!("an object is a JSON object: {object}");
    };
    let text = |field| object.get(field).and_then(Value::as_str);
    let kind = known(text("apiVersion"), text("kind").unwrap_or_default());
    let key = Key::of(kind, &object).expect("an object has metadata.name");
    store.put(kind, key, object, SystemTime::now()).version
}

fn known(api_version: Option<&str>, name: &str) -> Kind {
    Kind::by_name(api_version, name)
        .unwrap_or_else(|| panic!("no kind {name:?} of {api_version:?} is served"))
}

fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
