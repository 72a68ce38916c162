//! Upstream name servers that follow a script, and questions to a forwarder.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_dns::forward::{CacheOptions, ForwardOptions, Forwarder, Policy, Upstreams};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use testkit::netns::Netns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Time limit of a test.
const LIMIT: Duration = Duration::from_secs(60);

/// Time limit of [`eventually`].
const EVENTUALLY: Duration = Duration::from_secs(20);

/// Address of the first upstream of a test. The further ones have the next addresses.
pub(crate) const FIRST: &str = "127.0.0.11:53";
pub(crate) const SECOND: &str = "127.0.0.12:53";

/// A query that an upstream received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) message: Message,
    pub(crate) is_tcp: bool,
    pub(crate) source: SocketAddr,
}

impl Seen {
    pub(crate) fn name(&self) -> String {
        self.message.queries[0].name.to_string()
    }

    /// Returns whether the query is a health check.
    pub(crate) fn is_check(&self) -> bool {
        self.message.queries[0].query_type == RecordType::NS
    }

    /// Returns whether the query looks for a forwarding loop.
    pub(crate) fn is_probe(&self) -> bool {
        self.message.queries[0].query_type == RecordType::HINFO
    }
}

/// Reaction of an upstream to a query.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Sends bytes after a time.
    Send(Duration, Vec<u8>),
    /// Sends bytes from another address.
    SendFrom(SocketAddr, Vec<u8>),
    /// Closes the connection.
    Close,
}

type Script = Arc<dyn Fn(&Seen) -> Vec<Action> + Send + Sync>;

/// An upstream name server that follows a script, stopped when dropped.
pub(crate) struct Upstream {
    seen: Arc<Mutex<Vec<Seen>>>,
    tasks: [JoinHandle<()>; 2],
}

impl Upstream {
    /// Starts a server on UDP and TCP.
    pub(crate) async fn start(
        address: &str,
        script: impl Fn(&Seen) -> Vec<Action> + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let script: Script = Arc::new(script);
        let socket = UdpSocket::bind(address).await.unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let tasks = [
            tokio::spawn(serve_udp(socket, Arc::clone(&script), Arc::clone(&seen))),
            tokio::spawn(serve_tcp(listener, script, Arc::clone(&seen))),
        ];
        Self { seen, tasks }
    }

    /// Returns the queries, without health checks and searches for loops.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| !seen.is_check() && !seen.is_probe())
            .cloned()
            .collect()
    }

    /// Returns the number of queries, without health checks and searches for loops.
    pub(crate) fn count(&self) -> usize {
        self.seen().len()
    }

    /// Returns the number of health checks.
    pub(crate) fn checks(&self) -> usize {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .filter(|seen| seen.is_check())
            .count()
    }

    /// Stops the server and closes its sockets.
    pub(crate) async fn stop(mut self) {
        for task in &mut self.tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn serve_udp(socket: UdpSocket, script: Script, seen: Arc<Mutex<Vec<Seen>>>) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; 65_535];
    loop {
        // A client that is gone causes an ICMP error.
        let Ok((len, source)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let message = Message::from_vec(&buffer[..len]).expect("the forwarder's queries are valid");
        let query = Seen {
            message,
            is_tcp: false,
            source,
        };
        seen.lock().unwrap().push(query.clone());
        let actions = script(&query);
        let socket = Arc::clone(&socket);
        tokio::spawn(async move {
            for action in actions {
                match action {
                    Action::Send(wait, bytes) => {
                        sleep(wait).await;
                        let _ = socket.send_to(&bytes, source).await;
                    }
                    Action::SendFrom(address, bytes) => {
                        let other = UdpSocket::bind(address).await.unwrap();
                        other.send_to(&bytes, source).await.unwrap();
                    }
                    Action::Close => {}
                }
            }
        });
    }
}

async fn serve_tcp(listener: TcpListener, script: Script, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, source) = listener.accept().await.unwrap();
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        connections.spawn(async move {
            let _ = serve_stream(stream, source, &script, &seen).await;
        });
    }
}

async fn serve_stream(
    mut stream: TcpStream,
    source: SocketAddr,
    script: &Script,
    seen: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    loop {
        let len = stream.read_u16().await?;
        let mut bytes = vec![0; len.into()];
        stream.read_exact(&mut bytes).await?;
        let message = Message::from_vec(&bytes).expect("the forwarder's queries are valid");
        let query = Seen {
            message,
            is_tcp: true,
            source,
        };
        seen.lock().unwrap().push(query.clone());
        for action in script(&query) {
            match action {
                Action::Send(wait, bytes) => {
                    sleep(wait).await;
                    stream
                        .write_u16(u16::try_from(bytes.len()).unwrap())
                        .await?;
                    stream.write_all(&bytes).await?;
                }
                Action::SendFrom(..) => {}
                Action::Close => return Ok(()),
            }
        }
    }
}

/// Sends a message at once.
pub(crate) fn send(message: &Message) -> Vec<Action> {
    vec![now(message)]
}

/// Sends a message at once.
pub(crate) fn now(message: &Message) -> Action {
    Action::Send(Duration::ZERO, message.to_vec().unwrap())
}

/// Returns an empty response to a query.
pub(crate) fn empty(seen: &Seen) -> Message {
    let metadata = seen.message.metadata;
    let mut message = Message::new(metadata.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_available = true;
    message.queries.clone_from(&seen.message.queries);
    message.edns.clone_from(&seen.message.edns);
    message
}

/// Returns a response with one address.
pub(crate) fn address(seen: &Seen, last: u8, ttl: u32) -> Message {
    let mut message = empty(seen);
    message.add_answer(record(&seen.name(), last, ttl));
    message
}

/// Returns a response with an RCODE.
pub(crate) fn error(seen: &Seen, code: ResponseCode) -> Message {
    let mut message = empty(seen);
    message.metadata.response_code = code;
    message
}

/// Returns the response to a name that does not exist.
pub(crate) fn no_name(seen: &Seen, ttl: u32) -> Message {
    let mut message = error(seen, ResponseCode::NXDomain);
    let soa = SOA::new(name("ns."), name("admin."), 1, 2, 3, 4, ttl);
    message.add_authority(Record::from_rdata(Name::root(), ttl, RData::SOA(soa)));
    message
}

/// Returns an address record.
pub(crate) fn record(owner: &str, last: u8, ttl: u32) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A::new(192, 0, 2, last)))
}

pub(crate) fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// Returns options with short times, for upstreams that are asked in this order.
pub(crate) fn options(upstreams: &[&str]) -> ForwardOptions {
    let addresses = upstreams
        .iter()
        .map(|address| address.parse().unwrap())
        .collect();
    ForwardOptions {
        upstreams: Upstreams::Addresses(addresses),
        policy: Policy::Sequential,
        try_timeout: Some(Duration::from_secs(2)),
        attempts: Some(1),
        health_check: Duration::from_millis(50),
        cache: CacheOptions {
            min_success_ttl: Duration::ZERO,
            min_denial_ttl: Duration::ZERO,
            stale_wait: Duration::from_millis(200),
            stale_recheck: Duration::from_millis(100),
            ..CacheOptions::default()
        },
        ..ForwardOptions::default()
    }
}

/// Creates a forwarder with [`options`].
pub(crate) fn forwarder(upstreams: &[&str]) -> Forwarder {
    Forwarder::new(options(upstreams)).unwrap()
}

/// Returns a request for addresses.
pub(crate) fn request(owner: &str) -> Message {
    request_of(owner, RecordType::A)
}

/// Returns a request.
pub(crate) fn request_of(owner: &str, record_type: RecordType) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(owner), record_type));
    message
}

/// Asks for addresses.
pub(crate) async fn ask(forwarder: &Forwarder, owner: &str) -> Message {
    forwarder.resolve(&request(owner)).await
}

/// Returns the last bytes of the addresses of a response.
pub(crate) fn addresses(response: &Message) -> Vec<u8> {
    let last = |record: &Record| match &record.data {
        RData::A(address) => Some(address.0.octets()[3]),
        _ => None,
    };
    response.answers.iter().filter_map(last).collect()
}

/// Returns the RCODE of a response.
pub(crate) fn code(response: &Message) -> ResponseCode {
    response.metadata.response_code
}

/// Waits until `condition` is true.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let start = Instant::now();
    while !condition().await {
        assert!(
            start.elapsed() < EVENTUALLY,
            "not in {EVENTUALLY:?}: {what}"
        );
        sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a test on a runtime in a network namespace.
pub(crate) fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    Netns::new().unwrap().run(|| in_runtime(test));
}

/// Runs a test on a runtime of the calling thread.
pub(crate) fn in_runtime<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(LIMIT, test()).await.expect("the test ends in time") });
}
