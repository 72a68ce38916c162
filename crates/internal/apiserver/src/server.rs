//! The server's interface for tests.

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

use crate::faults::{Disconnect, Faults};
use crate::key::Key;
use crate::kind::Kind;
use crate::kubeconfig;
use crate::listener::{self, Listen, Order, Peer};
use crate::random::Random;
use crate::requests::Request;
use crate::routes;
use crate::state::State;
use crate::store::Store;
use crate::tls::Certificates;
use crate::tls_terminator::TlsTerminator;

/// Interval of checking awaited conditions.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A Kubernetes API server, stopped when dropped.
///
/// All methods may be called from any thread and network namespace. They do not wait
/// for a client, except `wait_for_watchers` and `wait_until`.
#[derive(Debug)]
pub struct ApiServer {
    state: Arc<State>,
    address: SocketAddr,
    certificates: Certificates,
    orders: UnboundedSender<Order>,
    /// Stops the server when dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server on a free port of 127.0.0.1, in the network namespace of the
    /// calling thread.
    ///
    /// # Panics
    ///
    /// If the server cannot listen.
    pub fn start() -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Starts a server at an address.
    ///
    /// # Panics
    ///
    /// If the server cannot listen at `address`.
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
            .expect("a thread starts");
        let address = binding
            .recv()
            .expect("the thread sends its address")
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

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the server, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the certificate of the server's CA, as PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.certificates.ca_certificate
    }

    /// Returns a kubeconfig with a client certificate.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::kubeconfig(self.address, &self.certificates, None)
    }

    /// Returns a kubeconfig with the current token.
    pub fn kubeconfig_with_token(&self) -> String {
        let token = self.state.token();
        kubeconfig::kubeconfig(self.address, &self.certificates, Some(&token))
    }

    /// Starts a TLS endpoint with the certificate of the server, which forwards
    /// connections to `target`.
    ///
    /// The endpoint listens on a free port of the address of `target`, in the network
    /// namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// If the endpoint cannot listen.
    pub fn terminate_tls(&self, target: SocketAddr) -> io::Result<TlsTerminator> {
        TlsTerminator::start(Arc::clone(&self.certificates.config), target)
    }

    /// Writes `token`, `ca.crt` and `namespace`, as in a pod's service account directory.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write_service_account(&self, directory: &Path) -> io::Result<()> {
        kubeconfig::write_service_account(directory, &self.certificates, &self.state.token())
    }

    /// Replaces the token. The old token becomes invalid.
    pub fn set_token(&self, token: &str) {
        self.state.set_token(token);
    }

    /// Creates or replaces an object, and returns its version.
    ///
    /// The default namespace of namespaced kinds is `default`.
    /// An equal object is not stored again.
    ///
    /// # Panics
    ///
    /// If the kind is not served, or if the object has no name.
    pub fn apply(&self, object: Value) -> u64 {
        self.state.change(|store| put(store, object))
    }

    /// Creates or replaces several objects in one step, and returns the last version.
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

    /// Deletes an object, and returns whether it existed.
    ///
    /// # Panics
    ///
    /// If `kind`, such as `Service`, is not served.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let (kind, key) = (served_kind(None, kind), key(namespace, name));
        self.state
            .change(|store| store.remove(kind, &key))
            .is_some()
    }

    /// Returns the current state of an object.
    ///
    /// # Panics
    ///
    /// If `kind` is not served.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let (kind, key) = (served_kind(None, kind), key(namespace, name));
        let object = self.state.store().get(kind, &key).cloned();
        object.map(|object| object.value().into())
    }

    /// Returns the current state of all objects of a kind.
    ///
    /// # Panics
    ///
    /// If `kind` is not served.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        self.objects_of(served_kind(None, kind))
    }

    /// Returns all Events, those of `events.k8s.io/v1` first.
    pub fn events(&self) -> Vec<Value> {
        let kinds = Kind::all().filter(|kind| kind.plural() == "events");
        kinds.flat_map(|kind| self.objects_of(kind)).collect()
    }

    /// Returns the version of the last change.
    pub fn resource_version(&self) -> u64 {
        self.state.store().version()
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests().clone()
    }

    /// Returns the number of requests with a verb for a resource, such as `list` and
    /// `services`.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let requests = self.state.requests();
        let asked = |request: &&Request| request.verb == verb && request.resource == resource;
        requests.iter().filter(asked).count()
    }

    /// Returns the number of open watches of a resource.
    pub fn watchers(&self, resource: &str) -> usize {
        self.state.watchers(Some(resource))
    }

    /// Waits until `number` watches are open. Returns `false` after `timeout`.
    ///
    /// Blocks the calling thread, so the client must run on another one.
    pub fn wait_for_watchers(&self, number: usize, timeout: Duration) -> bool {
        self.wait_until(timeout, |server| server.state.watchers(None) == number)
    }

    /// Waits until a condition holds. Returns `false` after `timeout`.
    ///
    /// Blocks the calling thread, so the client must run on another one.
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

    /// Changes the injected faults.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.state.change_faults(change);
    }

    /// Seeds the random number generator.
    pub fn seed(&self, seed: u64) {
        self.state.with_random(|random| *random = Random::new(seed));
    }

    /// Closes all connections, and returns their number.
    pub fn cut_connections(&self, disconnect: Disconnect) -> usize {
        self.state.cut(disconnect)
    }

    /// Stalls or resumes all connections, including new ones.
    pub fn hang_connections(&self, hang: bool) {
        self.state.hang(hang);
    }

    /// Refuses new connections. The server keeps its port.
    pub fn refuse_connections(&self) {
        self.order(Listen::Refuse);
    }

    /// Accepts connections again.
    pub fn accept_connections(&self) {
        self.order(Listen::Accept);
    }

    /// Sends a bookmark to all watches that allow bookmarks.
    pub fn send_bookmarks(&self) {
        self.state.ask_for_bookmarks();
    }

    /// Sets the period of bookmarks of new watches. Default: 60 s.
    pub fn bookmark_every(&self, period: Duration) {
        self.state.set_bookmark_period(period);
    }

    /// Limits the history of each kind. Default: 20,000 changes.
    pub fn keep_history(&self, changes: usize) {
        self.state.change(|store| store.keep(changes));
    }

    /// Discards the history. Watches from an old version are then answered with 410.
    pub fn compact(&self) {
        self.state.change(Store::compact);
    }

    /// Discards the history, and ends all watches with 410.
    pub fn expire_watches(&self) {
        self.compact();
        self.state.expire();
    }

    /// Simulates a restart: closes all connections, refuses new ones for `away`, and
    /// discards the history.
    ///
    /// The next version is higher by `jump`.
    pub fn restart(&self, away: Duration, jump: u64) {
        self.refuse_connections();
        self.cut_connections(Disconnect::Close);
        self.state.change(|store| {
            // Makes even the newest version too old.
            store.skip(jump.max(1));
            store.compact();
        });
        thread::sleep(away);
        self.accept_connections();
    }

    /// Clears all faults.
    pub fn clear_faults(&self) {
        self.faults(|faults| *faults = Faults::default());
        self.hang_connections(false);
        self.accept_connections();
    }

    fn order(&self, listen: Listen) {
        let (done, waiting) = mpsc::channel();
        let sent = self.orders.send((listen, done));
        sent.expect("the server runs until it is dropped");
        waiting.recv().expect("the listener confirms every order");
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
        // A panic of the thread has already been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs the server on the calling thread.
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
    let kind = served_kind(text("apiVersion"), text("kind").unwrap_or_default());
    let key = Key::of(kind, &object).expect("an object has metadata.name");
    store.put(kind, key, object, SystemTime::now()).version
}

fn served_kind(api_version: Option<&str>, name: &str) -> Kind {
    Kind::by_name(api_version, name)
        .unwrap_or_else(|| panic!("kind {name:?} of {api_version:?} is not served"))
}

fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
