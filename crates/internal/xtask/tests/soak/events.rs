//! Services that change all the time.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::lab::Lab;
use testkit::traffic::Protocol;

use crate::objects;
use crate::random::Random;

/// Number of events per second.
pub(crate) const RATE: u64 = 200;

/// Number of Services that change.
const SERVICES: usize = 100;

/// Pause between events.
const TICK: Duration = Duration::from_millis(5);

/// Services that change, and the state of the changes.
pub(crate) struct Events<'a> {
    server: &'a ApiServer,
    endpoints: Vec<IpAddr>,
    random: Random,
    /// Whether each Service exists.
    exists: Vec<bool>,
}

impl<'a> Events<'a> {
    /// Creates all Services.
    pub(crate) fn new(server: &'a ApiServer, lab: &Lab) -> Self {
        let mut events = Self {
            server,
            endpoints: lab.backends.iter().map(|host| host.v4.into()).collect(),
            random: Random(1),
            exists: vec![true; SERVICES],
        };
        for number in 0..SERVICES {
            server.apply(service(number, 0));
            let slice = events.slice(number);
            server.apply(slice);
        }
        events
    }

    /// Sends [`RATE`] events per second for a duration. Returns the number of events.
    pub(crate) fn send(&mut self, duration: Duration) -> u64 {
        let begin = Instant::now();
        let mut sent = 0;
        loop {
            let elapsed = begin.elapsed().min(duration);
            let due = u64::try_from(elapsed.as_millis()).unwrap() * RATE / 1000;
            while sent < due {
                self.send_one();
                sent += 1;
            }
            if elapsed == duration {
                return sent;
            }
            thread::sleep(TICK);
        }
    }

    /// Sends events without a pause.
    pub(crate) fn send_burst(&mut self, events: usize) {
        for _ in 0..events {
            self.send_one();
        }
    }

    /// Changes one object: mostly endpoints, sometimes a Service, which may also be deleted.
    fn send_one(&mut self) {
        let number = self.random.below(SERVICES);
        let name = name(number);
        match self.random.below(10) {
            _ if !self.exists[number] => {
                self.server.apply(service(number, 0));
                self.exists[number] = true;
            }
            0 => {
                assert!(self.server.delete("Service", "default", &name));
                self.exists[number] = false;
            }
            1 | 2 => {
                let variant = self.random.below(4);
                self.server.apply(service(number, variant));
            }
            _ => {
                let slice = self.slice(number);
                self.server.apply(slice);
            }
        }
    }

    /// Returns an EndpointSlice with random endpoints.
    fn slice(&mut self, number: usize) -> Value {
        let port = u16::try_from(9000 + self.random.below(1000)).unwrap();
        let count = self.random.below(self.endpoints.len() + 1);
        let name = name(number);
        let addresses = &self.endpoints[..count];
        objects::slice(&name, &name, &[(Protocol::Tcp, port)], addresses)
    }
}

fn name(number: usize) -> String {
    format!("churn-{number}")
}

/// Returns one of four variants of a Service.
fn service(number: usize, variant: usize) -> Value {
    let address = format!("10.97.0.{}", number + 1);
    let mut service = objects::service(&name(number), &[&address], &[(Protocol::Tcp, 80, None)]);
    let spec = &mut service["spec"];
    match variant {
        1 => spec["sessionAffinity"] = json!("ClientIP"),
        2 => spec["externalIPs"] = json!([format!("203.0.113.{}", number + 1)]),
        3 => spec["internalTrafficPolicy"] = json!("Local"),
        _ => {}
    }
    service
}
