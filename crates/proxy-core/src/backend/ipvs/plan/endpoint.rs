//! Objects of one endpoint: a real server and a hairpin entry.

use vipline_ipset::{Entry, Member};
use vipline_ipvs::{Object as Server, RealServer, ServiceKey};
use vipline_service_model::{Endpoint, ServicePort};

use super::Object;
use super::names;
use super::port::set_port;

/// ```ipvsadm
/// -a -t 10.96.0.20:80 -r 10.1.0.5:8080 -m -w 1
/// ```
///
/// Adds a real server. All ready endpoints have the same weight; draining ones have
/// weight 0.
pub(super) fn real_server(service: ServiceKey, endpoint: &Endpoint, weight: u32) -> Object {
    let real = RealServer::new(endpoint.addr, endpoint.port).with_weight(weight);
    Server::Destination(service, real).into()
}

/// ```ipset
/// add KUBE-LOOP-BACK 10.1.0.5,tcp:8080,10.1.0.5
/// ```
///
/// Lists a local pod that may connect to itself.
pub(super) fn hairpin(port: &ServicePort, endpoint: &Endpoint) -> Object {
    let Endpoint {
        addr, port: number, ..
    } = *endpoint;
    let member = Member::IpPortIp(addr, set_port(port.protocol, number), addr);
    let entry = Entry::new(names::LOOP_BACK.name(port.family), member);
    vipline_ipset::Object::from(entry).into()
}
