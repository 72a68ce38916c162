//! Tests of connections whose clients do not read, on one thread and without sockets.

use std::future::Future;
use std::sync::RwLock;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use vipline_service_dns::service_model::{Event, api};
use vipline_service_dns::{Options, Zone};

use super::*;
use crate::server::respond::Responder;
use crate::telemetry::{QueryLog, Telemetry};

/// Endpoints of the Service `big`. The response for type A has more than 16 KiB.
const ENDPOINTS: usize = 1_000;

/// Turns of the thread after which a connection has done all that it can do.
const TURNS: usize = 2_000;

fn zone() -> Zone {
    let mut zone = Zone::new(Options::new("cluster.local".parse().unwrap()));
    let mut big = api::Service {
        metadata: api::ObjectMeta::named("shop", "big"),
        ..api::Service::default()
    };
    big.spec.cluster_ip = "None".into();
    zone.apply(&Event::ServiceApplied(big));
    let mut metadata = api::ObjectMeta::named("shop", "big-1");
    let label = api::EndpointSlice::SERVICE_NAME_LABEL.to_owned();
    metadata.labels.insert(label, "big".to_owned());
    let endpoint = |number: usize| api::SliceEndpoint {
        addresses: vec![format!("10.0.{}.{}", number / 250, number % 250 + 1)],
        ..Default::default()
    };
    zone.apply(&Event::SliceApplied(api::EndpointSlice {
        metadata,
        endpoints: (0..ENDPOINTS).map(endpoint).collect(),
        ..Default::default()
    }));
    zone.apply(&Event::Synced);
    zone
}

/// A connection that is served, without a socket.
struct Served {
    client: DuplexStream,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Served {
    /// Serves a connection. `buffer` is the number of bytes in each direction that the
    /// network holds.
    fn start(buffer: usize) -> Self {
        Self::within(buffer, &Budget::new())
    }

    /// Serves a connection that shares a budget.
    fn within(buffer: usize, budget: &Arc<Budget>) -> Self {
        let zone = Arc::new(RwLock::new(zone()));
        let log = Arc::new(QueryLog::start(false).unwrap());
        let client = SocketAddr::from(([127, 0, 0, 1], 4000));
        let counters = Arc::new(Counters::default());
        let connection = Connection {
            client,
            idle_timeout: Duration::from_secs(60),
            context: Context {
                responder: Arc::new(Responder::new(Arc::clone(&zone), None, log, 1232)),
                telemetry: Arc::new(Telemetry::new(zone, None)),
                runtime: tokio::runtime::Handle::current(),
            },
            counters: Arc::clone(&counters),
            budget: Arc::clone(budget),
        };
        let (stream, server) = io::duplex(buffer);
        let task = tokio::spawn(async move {
            let (slot, _evicted) = Pool::new(1, 1).admit(client.ip());
            let (reader, writer) = io::split(server);
            connection.serve(reader, writer, &slot).await;
        });
        Self {
            client: stream,
            counters,
            task,
        }
    }

    /// Sends queries for a Service in one piece.
    async fn send(&mut self, count: u16, service: &str) {
        let queries: Vec<u8> = (0..count).flat_map(|id| query(id, service)).collect();
        self.client.write_all(&queries).await.unwrap();
    }

    /// Returns the number of responses.
    fn responses(&self) -> u64 {
        self.counters.of_zone_over_tcp().0
    }
}

/// Returns a query with its length.
fn query(id: u16, service: &str) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    let name = Name::from_ascii(format!("{service}.shop.svc.cluster.local.")).unwrap();
    message.add_query(Query::query(name, RecordType::A));
    frame(&message.to_vec().unwrap())
}

/// Runs a test as a task. It takes turns with the connection on one thread.
fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce() -> F) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let task = runtime.spawn(test());
    runtime.block_on(task).unwrap();
}

#[test]
fn other_tasks_run_between_the_responses_to_pipelined_requests() {
    run(|| async {
        let mut served = Served::start(4 << 20);
        served.send(100, "big").await;
        let (mut before, mut turns) = (0, 0);
        while before < 100 {
            yield_now().await;
            let now = served.responses();
            assert!(now <= before + 16, "{} responses in one turn", now - before);
            before = now;
            turns += 1;
            assert!(turns < TURNS, "{now} responses");
        }
    });
}

#[test]
fn responses_that_are_not_read_take_bounded_memory() {
    const BUFFER: usize = 16 << 10;
    run(|| async {
        let mut served = Served::start(BUFFER);
        served.send(300, "big").await;
        for _ in 0..TURNS {
            yield_now().await;
        }
        let (count, bytes) = served.counters.of_zone_over_tcp();
        let size = usize::try_from(bytes / count).unwrap();
        assert!(size > 16_000, "{size} bytes");
        // In the network, in the queue, and one that waits for its place.
        let most = (BUFFER + QUEUED_BYTES + size) / size + 1;
        assert!(count <= most as u64, "{count} responses, {bytes} bytes");
        assert!(!served.task.is_finished());
        // All responses arrive once the client reads.
        for _ in 0..300 {
            let size = served.client.read_u16().await.unwrap();
            let mut response = vec![0; size.into()];
            served.client.read_exact(&mut response).await.unwrap();
        }
        assert_eq!(served.responses(), 300);
    });
}

#[test]
fn requests_of_a_client_that_is_gone_are_not_answered() {
    run(|| async {
        let mut served = Served::start(1 << 20);
        served.send(100, "none").await;
        let Served {
            client,
            counters,
            task,
        } = served;
        drop(client);
        task.await.unwrap();
        let (count, _) = counters.of_zone_over_tcp();
        assert!(count <= 16, "{count} responses");
    });
}

#[test]
fn small_responses_are_limited_in_number() {
    run(|| async {
        let (queue, mut frames) = Queue::new(Budget::new());
        for _ in 0..PIPELINED {
            assert!(queue.push(vec![0; 20], None).await);
        }
        assert_eq!(queue.room.available_permits(), 0);
        drop(frames.recv().await.unwrap());
        assert_eq!(queue.room.available_permits(), LEAST_BYTES);
        drop(frames);
        assert!(!queue.push(vec![0; 20], None).await);
    });
}

#[test]
fn clients_that_do_not_read_lose_their_connections_when_others_need_the_memory() {
    run(|| async {
        let budget = Budget::of(2 * QUEUED_BYTES);
        let mut silent = Vec::new();
        for _ in 0..2 {
            let mut served = Served::within(16 << 10, &budget);
            served.send(100, "big").await;
            silent.push(served);
        }
        let is_used_up = || budget.bytes.available_permits() < 20_000;
        for turn in 0.. {
            yield_now().await;
            assert!(turn < TURNS, "{}", budget.bytes.available_permits());
            if is_used_up() {
                break;
            }
        }
        let mut reader = Served::within(16 << 10, &budget);
        for _ in 0..20 {
            reader.send(1, "big").await;
            let size = reader.client.read_u16().await.unwrap();
            let mut response = vec![0; size.into()];
            reader.client.read_exact(&mut response).await.unwrap();
        }
        for served in silent {
            timeout(WRITE / 2, served.task).await.unwrap().unwrap();
        }
        drop(reader);
        while budget.bytes.available_permits() < 2 * QUEUED_BYTES {
            sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn an_announced_length_takes_no_memory_and_a_long_request_is_malformed() {
    run(|| async {
        let mut served = Served::start(1 << 20);
        let mut long = vec![0; 60_000];
        long[..12].copy_from_slice(b"\0\x07\x01\0\0\x01\0\0\0\0\0\0");
        served.client.write_all(&frame(&long)).await.unwrap();
        served.send(1, "big").await;
        let mut codes = Vec::new();
        for _ in 0..2 {
            let size = served.client.read_u16().await.unwrap();
            let mut response = vec![0; size.into()];
            served.client.read_exact(&mut response).await.unwrap();
            codes.push(Message::from_vec(&response).unwrap().metadata.response_code);
        }
        use hickory_proto::op::ResponseCode::{FormErr, NoError};
        assert_eq!(codes, [FormErr, NoError]);
        let mut input = BufReader::new(&b"\xFF\xFFab"[..]);
        assert!(read_frame(&mut input).await.is_err());
    });
}
