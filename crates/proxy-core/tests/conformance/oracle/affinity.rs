//! Session affinity.
//!
//! The next connection of a client to any address of a service port reaches the endpoint
//! of the previous one, if the policy of the address allows that endpoint.

use std::net::SocketAddr;

use super::frontend::{Frontend, Precedence};
use super::policy::Endpoint;

/// The previous connection of a client.
#[derive(Clone, Debug)]
pub(crate) struct Previous {
    /// The service port.
    pub(crate) of: Precedence,
    /// The address and port that the client connected to.
    pub(crate) to: SocketAddr,
    pub(crate) endpoint: SocketAddr,
}

/// Returns the endpoints that remain possible after a previous connection.
pub(crate) fn restrict<'e>(
    frontend: &Frontend,
    endpoints: &'e [Endpoint],
    previous: Option<&Previous>,
) -> &'e [Endpoint] {
    let previous = previous.filter(|it| frontend.has_affinity && it.of == frontend.precedence);
    let recorded = previous.and_then(|previous| {
        let place = endpoints
            .iter()
            .position(|it| it.address == previous.endpoint)?;
        endpoints.get(place..=place)
    });
    recorded.unwrap_or(endpoints)
}
