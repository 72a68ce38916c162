//! The rules of the plan and of the kernel, for the evaluation of packets.

use std::collections::BTreeSet;
use std::iter;
use std::net::{IpAddr, SocketAddr};

use vipline_evaluate::Host;
use vipline_service_model::{Family, ServicePort};

use crate::Engine;
use crate::evaluate::{self, Rules};

impl Engine {
    /// Returns the addresses and routes of a typical node, for the evaluation of the plan
    /// without a kernel.
    ///
    /// Interface `eth0` has the addresses of the Node object and those of
    /// [`set_addresses`](Self::set_addresses), and leads to all other hosts. The pod
    /// networks of the node and all endpoints on this node are reached through `cni0`, or
    /// through the interface that [`Config::detect_local`](crate::Config::detect_local)
    /// names; a prefix gets the suffix `0`. In mode ipvs, `kube-ipvs0` has the addresses of
    /// Services ([`Planner::service_link`](crate::Planner::service_link)). No packet exceeds a limit.
    pub fn assumed_host(&self) -> Host {
        let ports = || self.store.ports().map(|port| &**port);
        let detect_local = &self.config.detect_local;
        let node = self.store.node();
        let host = evaluate::assumed(detect_local, &node, &self.addresses, ports());
        let mut links = self
            .drivers
            .iter()
            .filter_map(|driver| driver.service_link());
        let Some(link) = links.next() else {
            return host;
        };
        let is_own = |addr: &IpAddr| node.addresses.contains(addr) || self.addresses.contains(addr);
        let bound: BTreeSet<IpAddr> = ports().flat_map(addresses).collect();
        let bound = bound.into_iter().filter(|addr| !is_own(addr));
        bound.fold(host, |host, addr| host.with_addr(link, addr.into()))
    }

    /// Plans all changes, and prepares the plan of a family for the evaluation of packets.
    ///
    /// The plan contains the rules of the proxy alone. The result is a copy: its cost is
    /// proportional to the number of objects. Returns `None` if the family is not
    /// configured, or if the objects of the planner cannot be evaluated.
    pub fn desired_rules(&mut self, family: Family) -> Option<Rules> {
        self.plan();
        let mut drivers = self.drivers.iter();
        let driver = drivers.find(|driver| driver.family() == family)?;
        driver.desired_rules()
    }

    /// Prepares the last plan for a destination alone: the rules that do not depend on
    /// Services, and those of the service ports with this address or node
    /// port.
    ///
    /// The evaluation of packets to the destination has the same outcomes as with
    /// [`desired_rules`](Self::desired_rules). The cost is proportional to the number of
    /// service ports and to the objects of those that match.
    pub fn desired_rules_of(&self, destination: SocketAddr) -> Option<Rules> {
        let family = Family::of(destination.ip());
        let number = destination.port();
        let mut drivers = self.drivers.iter();
        let mut driver = drivers
            .find(|driver| driver.family() == family)?
            .without_kernel();
        driver.set_context(self.context(family));
        let has_addr = |port: &ServicePort| {
            let addr = destination.ip();
            let external = port.external_ips.contains(&addr);
            port.cluster_ip == addr || external || port.load_balancer_ips.contains(&addr)
        };
        let ports = self.store.ports().filter(|port| port.family == family);
        let is_wanted = |port: &ServicePort| has_addr(port) || port.node_port == Some(number);
        let mut has_source_ranges = false;
        for port in ports {
            // Source ranges of any Service add rules that all packets pass.
            let is_first = port.restricts_sources() && !has_source_ranges;
            has_source_ranges |= is_first;
            if is_wanted(port) || is_first {
                driver.plan(port);
            }
        }
        driver.desired_rules()
    }
}

/// Returns the addresses of a service port, except those of the node.
fn addresses(port: &ServicePort) -> impl Iterator<Item = IpAddr> {
    let external = port.external_ips.iter().chain(&*port.load_balancer_ips);
    iter::once(port.cluster_ip).chain(external.copied())
}
