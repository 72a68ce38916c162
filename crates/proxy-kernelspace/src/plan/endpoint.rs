//! Remote endpoints.

use std::net::IpAddr;

use super::names::mac;
use super::object::{Endpoint, EndpointKind, Object};
use crate::Settings;
use proxy_engine::Context;

/// Returns an endpoint of another node.
///
/// ```hns
/// remote endpoint 10.244.2.3
/// remote endpoint 10.244.2.3 provider 10.0.0.12
/// ```
///
/// In an overlay network packets go to the node of the endpoint, or from this node to an
/// endpoint outside of the cluster.
pub(super) fn remote(cx: &Context, settings: &Settings, address: IpAddr) -> Object {
    let provider = || settings.provider_of(address).or(cx.node_address);
    Object::from(Endpoint {
        address,
        kind: EndpointKind::Remote,
        mac: mac(address).into(),
        provider: settings.is_overlay.then(provider).flatten(),
    })
}

/// Returns the VIP endpoint of a cluster IP in an overlay network: a remote endpoint on
/// this node.
///
/// ```hns
/// remote endpoint 10.96.0.10 provider 10.0.0.11
/// ```
pub(super) fn vip(cx: &Context, settings: &Settings, address: IpAddr) -> Object {
    Object::from(Endpoint {
        address,
        kind: EndpointKind::Remote,
        mac: settings.host_mac.clone(),
        provider: cx.node_address,
    })
}

/// Returns whether packets to a remote endpoint need the address of this node as source:
/// the endpoint is a node, or outside of the cluster.
pub(super) fn needs_node_as_source(settings: &Settings, address: IpAddr) -> bool {
    let provider = settings.provider_of(address);
    provider.is_none_or(|provider| provider == address)
}
