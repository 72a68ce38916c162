//! Generated clusters, and changes of one Service.

use std::fmt;
use std::net::Ipv4Addr;

use testkit::generate::{self, Stack};
use vipline_service_model::{Event, api};

/// Size of a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// Number of Services.
    pub services: usize,
    /// Number of endpoints per Service.
    pub endpoints: usize,
}

impl Size {
    /// Creates a size.
    pub const fn new(services: usize, endpoints: usize) -> Self {
        Self {
            services,
            endpoints,
        }
    }

    /// Returns the events of the initial list, except [`Event::Synced`].
    pub fn events(self) -> impl Iterator<Item = Event> {
        generate::cluster(self.services, self.endpoints, Stack::V4).flat_map(|plan| plan.events())
    }

    /// Returns the EndpointSlices of `count` Services, evenly distributed.
    pub fn slices(self, count: usize) -> Vec<api::EndpointSlice> {
        let step = (self.services / count).max(1);
        generate::cluster(self.services, self.endpoints, Stack::V4)
            .step_by(step)
            .flat_map(|plan| plan.slices())
            .take(count)
            .collect()
    }
}

/// Formats as `10000 x 5`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.services, self.endpoints)
    }
}

/// Replaces the endpoint at index `place`; `number` must be unused.
pub fn replace(slice: &mut api::EndpointSlice, place: usize, number: u32) {
    let place = place % slice.endpoints.len();
    slice.endpoints[place].addresses = vec![address(number)];
}

/// Adds an endpoint.
pub fn add(slice: &mut api::EndpointSlice, number: u32) {
    slice.endpoints.push(api::SliceEndpoint {
        addresses: vec![address(number)],
        ..api::SliceEndpoint::default()
    });
}

/// Returns an address that no generated cluster uses.
fn address(number: u32) -> String {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 192, 0, 0).to_bits() + number).to_string()
}
