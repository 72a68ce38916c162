//! Status of Services with addresses of load balancers.

use serde_json::Value;

use super::text::{address, is_dns_subdomain};
use super::{Strictness, Violations};
use crate::json::{list, text};

const PATH: &str = "status.loadBalancer.ingress";

/// Checks an update of a status.
///
/// Any address is valid, including loopback and unspecified addresses. Addresses of the
/// old status are not validated again.
pub(super) fn check(old: &Value, new: &Value, strictness: Strictness, found: &mut Violations) {
    let pointer = "/status/loadBalancer/ingress";
    let (former, ingress) = (list(old, pointer), list(new, pointer));
    let is_balancer = text(old, "/spec/type") == "LoadBalancer";
    found.require(is_balancer || ingress.is_empty(), PATH, "must be empty");
    if !is_balancer {
        return;
    }
    for each in ingress {
        let (ip, mode, host) = (
            text(each, "/ip"),
            text(each, "/ipMode"),
            text(each, "/hostname"),
        );
        let is_known = former.iter().any(|former| text(former, "/ip") == ip);
        let is_address = ip.is_empty() || is_known || address(ip, strictness).is_some();
        found.require(is_address, PATH, "must be an address");
        let is_mode = match ip {
            "" => mode.is_empty(),
            _ => matches!(mode, "VIP" | "Proxy"),
        };
        found.require(is_mode, PATH, "must have an IP mode if it has an address");
        let is_address = address(host, Strictness::Legacy).is_some();
        let is_host = host.is_empty() || is_dns_subdomain(host) && !is_address;
        found.require(is_host, PATH, "must have a DNS name for a host name");
    }
}
