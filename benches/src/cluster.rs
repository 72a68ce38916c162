//! Clusters of some size, and changes of one Service in them.

use std::fmt;
use std::net::Ipv4Addr;

use testkit::generate::{self, Stack};
use vipline_service_model::{Event, api};

/// How many Services there are, and how many endpoints each has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// The number of Services.
    pub services: usize,
    /// The number of endpoints of each.
    pub endpoints: usize,
}

impl Size {
    /// Returns a size.
    pub const fn new(services: usize, endpoints: usize) -> Self {
        Self {
            services,
            endpoints,
        }
    }

    /// Returns the events of the first listing, all but the last one.
    pub fn events(self) -> impl Iterator<Item = Event> {
        generate::cluster(self.services, self.endpoints, Stack::V4).flat_map(|plan| plan.events())
    }

    /// Returns the EndpointSlices of `count` Services, far apart from each other.
    pub fn slices(self, count: usize) -> Vec<api::EndpointSlice> {
        let step = (self.services / count).max(1);
        generate::cluster(self.services, self.endpoints, Stack::V4)
            .step_by(step)
            .flat_map(|plan| plan.slices())
            .take(count)
            .collect()
    }
}

/// Displays as `10000 x 5`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.services, self.endpoints)
    }
}

/// Puts an endpoint in the place of another one; `number` must be a new one.
pub fn replace(slice: &mut api::EndpointSlice, place: usize, number: u32) {
    let place = place % slice.endpoints.len();
    slice.endpoints[place].addresses = vec![address(number)];
}

/// Adds an endpoint.
pub fn add(slice: &mut api::EndpointSlice, number: u32) {
    slice.endpoints.push(api::Endpoint {
        addresses: vec![address(number)],
        ..api::Endpoint::default()
    });
}

/// An address that no generated cluster uses.
fn address(number: u32) -> String {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 192, 0, 0).to_bits() + number).to_string()
}
