//! Objects of one service port: virtual servers, addresses, and set entries.

use std::net::IpAddr;

use ipnet::IpNet;
use vipline_ipset::{self as ipset, Member};
use vipline_iptables::targets::Target;
use vipline_iptables::{Position, Rule, matches};
use vipline_ipvs::{self as ipvs, Flags, Persistence, Scheduler, ServiceKey, VirtualServer};
use vipline_rtnl as rtnl;
use vipline_service_model::{Endpoint, Route, ServicePort, Transport};

use super::Object;
use super::endpoint::{hairpin, real_server};
use super::names::{self, FILTER, Set};
use crate::Fragment;
use crate::backend::iptables::plan::rules::entry;
use crate::{Address, AddressKind, Context, PortObjects};

/// Returns the objects of a service port.
pub(super) fn objects(cx: &Context, scheduler: Scheduler, of: &ServicePort) -> PortObjects<Object> {
    let mut port = Port {
        cx,
        scheduler,
        of,
        out: Fragment::default(),
    };
    for endpoint in of.reachable_local() {
        port.out.own.push(hairpin(of, &endpoint));
    }
    port.cluster_ip();
    for (addr, kind) in of.external_addresses() {
        match kind {
            AddressKind::LoadBalancerIp => port.load_balancer_ip(addr),
            _ => port.external_ip(addr),
        }
    }
    if let Some(number) = of.node_port {
        port.node_port(number);
    }
    if let Some(number) = of.health_check_node_port {
        let entry = port.entry(&names::HEALTH_CHECK_NODE_PORT, Member::Port(number));
        port.out.own.push(entry);
    }
    port.out.into()
}

/// Collects the objects of a service port.
struct Port<'a> {
    cx: &'a Context,
    /// Scheduler of Services that do not select one themselves.
    scheduler: Scheduler,
    of: &'a ServicePort,
    out: Fragment<Object>,
}

impl Port<'_> {
    /// ```ipset
    /// add KUBE-CLUSTER-IP 10.96.0.20,tcp:80
    /// ```
    ///
    /// Routes the cluster IP by the internal traffic policy. Without endpoints the kernel
    /// rejects connections. Without local endpoints, policy Local of a Service that is also
    /// served outside of the cluster uses all endpoints, as in upstream.
    fn cluster_ip(&mut self) {
        let of = self.of;
        let kind = AddressKind::ClusterIp;
        let endpoints = of.endpoints(of.internal_or_cluster());
        self.virtual_server(kind, of.cluster_ip, of.port, endpoints);
        self.bind(of.cluster_ip);
        self.list(kind, &names::CLUSTER_IP, of.cluster_ip);
    }

    /// ```ipset
    /// add KUBE-EXTERNAL-IP 192.0.2.7,tcp:80
    /// add KUBE-EXTERNAL-IP-LOCAL 192.0.2.7,tcp:80
    /// ```
    ///
    /// Adds an external IP to one of the sets, depending on the external traffic policy.
    fn external_ip(&mut self, addr: IpAddr) {
        let set = match self.of.masquerades_external() {
            true => &names::EXTERNAL_IP,
            false => &names::EXTERNAL_IP_LOCAL,
        };
        let kind = AddressKind::ExternalIp;
        if self.external_server(kind, addr, self.of.port) {
            self.bind_elsewhere(addr);
        }
        self.list(kind, set, addr);
    }

    /// ```ipset
    /// add KUBE-LOAD-BALANCER 203.0.113.9,tcp:80
    /// add KUBE-LOAD-BALANCER-LOCAL 203.0.113.9,tcp:80
    /// add KUBE-LOAD-BALANCER-FW 203.0.113.9,tcp:80
    /// ```
    ///
    /// Adds a load balancer IP to the sets for its traffic policy and source ranges.
    fn load_balancer_ip(&mut self, addr: IpAddr) {
        let kind = AddressKind::LoadBalancerIp;
        if self.external_server(kind, addr, self.of.port) {
            self.bind_elsewhere(addr);
        }
        self.list(kind, &names::LOAD_BALANCER, addr);
        if !self.of.masquerades_external() {
            self.list(kind, &names::LOAD_BALANCER_LOCAL, addr);
        }
        if self.of.restricts_sources() {
            self.source_ranges(addr);
        }
    }

    /// ```ipset
    /// add KUBE-LOAD-BALANCER-FW 203.0.113.9,tcp:80
    /// add KUBE-LOAD-BALANCER-SOURCE-CIDR 203.0.113.9,tcp:80,198.51.100.0/24
    /// add KUBE-LOAD-BALANCER-SOURCE-IP 203.0.113.9,tcp:80,203.0.113.9
    /// ```
    /// Restricts the address to its source ranges. Local processes use the address itself
    /// as their source, so it is allowed if a range contains the node's address.
    fn source_ranges(&mut self, addr: IpAddr) {
        let (of, kind) = (self.of, AddressKind::LoadBalancerIp);
        self.list(kind, &names::LOAD_BALANCER_FW, addr);
        let at = set_port(of.protocol, of.port);
        for range in &*of.source_ranges {
            let member = Member::IpPortNet(addr, at, *range);
            let entry = self.entry(&names::LOAD_BALANCER_SOURCE_CIDR, member);
            self.claim(kind, self.address(addr, of.port), entry);
        }
        let object = if of.allows_node(self.cx.node_address) {
            let member = Member::IpPortIp(addr, at, addr);
            self.entry(&names::LOAD_BALANCER_SOURCE_IP, member)
        } else {
            self.drop_local_traffic(addr)
        };
        self.claim(kind, self.address(addr, of.port), object);
    }

    /// ```iptables
    /// -t filter -A KUBE-IPVS-OUT-FILTER -s 203.0.113.9/32 -m ipvs --vproto 6 --vaddr 203.0.113.9 --vport 80 -j DROP
    /// ```
    ///
    /// Drops traffic of local processes to an address that they may not use.
    fn drop_local_traffic(&self, addr: IpAddr) -> Object {
        let protocol = self.of.protocol.into();
        let rule = Rule::new()
            .with_source(IpNet::from(addr))
            .with_match(matches::Ipvs::server(protocol, addr, self.of.port))
            .with_target(Target::Drop);
        let family = self.cx.family;
        entry(family, FILTER, names::IPVS_OUT_FILTER, Position::Head, rule).into()
    }

    /// ```ipset
    /// add KUBE-NODE-PORT-TCP 30080
    /// add KUBE-NODE-PORT-LOCAL-TCP 30080
    /// add KUBE-NODE-PORT-SCTP-HASH 192.0.2.10,sctp:30080
    /// ```
    ///
    /// Adds a virtual server on each node address on which node ports are served.
    fn node_port(&mut self, number: u16) {
        let of = self.of;
        let (all, local) = match of.protocol {
            Transport::Tcp => (&names::NODE_PORT_TCP, &names::NODE_PORT_LOCAL_TCP),
            Transport::Udp => (&names::NODE_PORT_UDP, &names::NODE_PORT_LOCAL_UDP),
            Transport::Sctp => (&names::NODE_PORT_SCTP, &names::NODE_PORT_LOCAL_SCTP),
        };
        let kept = (!of.masquerades_external()).then_some(local);
        let sets = || [all].into_iter().chain(kept);
        let kind = AddressKind::NodePort;
        for addr in self.cx.node_port_ips() {
            self.external_server(kind, addr, number);
            if of.protocol == Transport::Sctp {
                for set in sets() {
                    let member = Member::IpPort(addr, set_port(of.protocol, number));
                    self.claim(kind, self.address(addr, number), self.entry(set, member));
                }
            }
        }
        if of.protocol != Transport::Sctp {
            for set in sets() {
                let address = Address::NodePort(of.protocol, number);
                self.claim(kind, address, self.entry(set, Member::Port(number)));
            }
        }
    }

    /// Adds a virtual server for external traffic. Returns whether it is new.
    ///
    /// A virtual server cannot distinguish sources. If policy Local leaves no endpoint,
    /// it uses all endpoints of the cluster, for pods and processes of this node.
    fn external_server(&mut self, kind: AddressKind, addr: IpAddr, number: u16) -> bool {
        let of = self.of;
        let route = match of.external {
            Route::Local => Route::Local,
            Route::Cluster | Route::Drop | Route::Reject => Route::Cluster,
        };
        self.virtual_server(kind, addr, number, of.endpoints(route))
    }

    /// ```ipvsadm
    /// -A -t 10.96.0.20:80 -s rr
    /// -A -t 10.96.0.20:80 -s mh -p 10800 -b mh-port
    /// ```
    ///
    /// Adds a virtual server. With session affinity it is persistent. An address of
    /// several kinds has one virtual server. Returns whether it is new.
    fn virtual_server(
        &mut self,
        kind: AddressKind,
        addr: IpAddr,
        number: u16,
        endpoints: &[Endpoint],
    ) -> bool {
        let of = self.of;
        let objects = self.out.at(kind, self.address(addr, number));
        if !objects.is_empty() {
            return false;
        }
        let service = ServiceKey::new(of.protocol, addr, number);
        let scheduler = of.scheduler.unwrap_or(self.scheduler);
        let mut server = VirtualServer::new(service, scheduler).with_flags(flags(scheduler));
        server.persistence = of
            .affinity
            .map(|seconds| Persistence::per_client(service.family(), seconds));
        objects.push(ipvs::Object::from(server).into());
        objects.extend(endpoints.iter().map(|it| real_server(service, it, 1)));
        // UDP flows have no end. They may continue while their endpoint serves.
        if of.protocol == Transport::Udp {
            let terminating = of.serving_terminating.iter();
            let terminating = terminating.filter(|it| endpoints.binary_search(it).is_err());
            objects.extend(terminating.map(|it| real_server(service, it, 0)));
        }
        true
    }

    /// ```sh
    /// ip address add 10.96.0.20/32 dev kube-ipvs0
    /// ipset add KUBE-IPVS-IPS 10.96.0.20
    /// ```
    ///
    /// Adds the address to the node, so that packets to it reach IPVS.
    fn bind(&mut self, addr: IpAddr) {
        let address = rtnl::Address::new(names::link(), IpNet::from(addr));
        let entry = self.entry(&names::IPVS_IPS, Member::Ip(addr));
        let address = rtnl::Object::from(address).into();
        self.out.own.extend([address, entry]);
    }

    /// Binds an address unless another interface of the node has it.
    fn bind_elsewhere(&mut self, addr: IpAddr) {
        if !self.cx.is_of_node(addr) {
            self.bind(addr);
        }
    }

    /// Adds an address with the port to a set.
    fn list(&mut self, kind: AddressKind, set: &Set, addr: IpAddr) {
        let of = self.of;
        let member = Member::IpPort(addr, set_port(of.protocol, of.port));
        self.claim(kind, self.address(addr, of.port), self.entry(set, member));
    }

    fn entry(&self, set: &Set, member: Member) -> Object {
        let entry = ipset::Entry::new(set.name(self.cx.family), member);
        ipset::Object::from(entry).into()
    }

    fn address(&self, addr: IpAddr, number: u16) -> Address {
        Address::Ip(addr, self.of.protocol, number)
    }

    /// Adds an object that the port has only if its claim to the address wins.
    fn claim(&mut self, kind: AddressKind, address: Address, object: Object) {
        self.out.at(kind, address).push(object);
    }
}

/// Returns a port in the type of set entries.
pub(super) fn set_port(protocol: Transport, number: u16) -> ipset::Port {
    ipset::Port::new(protocol, number)
}

/// Returns the flags of a scheduler.
///
/// Maglev also hashes ports; otherwise all connections of a client would use one
/// endpoint.
pub(in crate::backend) fn flags(scheduler: Scheduler) -> Flags {
    match scheduler {
        Scheduler::Maglev => Flags::MH_PORT,
        _ => Flags::empty(),
    }
}
