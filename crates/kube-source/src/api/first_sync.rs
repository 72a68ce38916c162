//! Conditions of the first sync, and changes of the Node afterwards.

use std::sync::Arc;
use std::time::Duration;

use vipline_service_model::{DetectLocal, Kind, NodeView, api};

/// How long the first sync waits for node addresses.
const ADDRESSES_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the first sync waits for podCIDRs of the Node, if they are needed.
const POD_CIDRS_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the first sync waits for ServiceCIDRs after all other kinds are
/// listed.
///
/// Upstream does not wait at all. A short wait spares a restarted proxy from
/// removing rules about ServiceCIDRs and adding them again.
const SERVICE_CIDRS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the first sync waits for addresses or podCIDRs until
/// [`lack`](FirstSyncGate::lack) says so.
///
/// On a node that boots, the Node object often precedes its addresses and podCIDRs by a moment,
/// which is nothing to report. The end of the wait for ServiceCIDRs is the same moment, so that
/// there is one deadline.
const PATIENCE: Duration = SERVICE_CIDRS_TIMEOUT;

/// Delays the first sync until the required objects are known.
///
/// All kinds must be listed, but the gate waits at most 2 s for ServiceCIDRs. Then the
/// Node must have addresses: the gate waits at most 30 s. If the detection of local
/// traffic needs podCIDRs, the gate waits five minutes for them, and then fails.
#[derive(Debug)]
pub struct FirstSyncGate {
    node: Arc<str>,
    needs_pod_cidrs: bool,
    /// Whether the first sync waits for addresses and podCIDRs of the Node.
    waits_for_node: bool,
    /// The kinds that have not been listed.
    missing: Vec<Kind>,
    /// Time of the first complete list of Nodes.
    node_listed: Option<Duration>,
    /// Time at which all kinds except ServiceCIDRs were listed.
    others_listed: Option<Duration>,
    current: Option<NodeView>,
    /// Whether [`PATIENCE`] is over.
    is_impatient: bool,
    is_open: bool,
}

/// A change of the Node.
///
/// Exhaustive: a proxy reacts to each change.
#[derive(Debug, Eq, PartialEq)]
pub enum NodeChange {
    /// No change that matters.
    None,
    /// A change other than the following, or the first Node. The caller applies it.
    Other,
    /// Changed addresses. The caller applies them.
    Addresses,
    /// Changed podCIDRs, which require a restart of the proxy.
    PodCidrs,
}

/// Whether the first sync may begin.
///
/// Exhaustive: a proxy reacts to each state.
#[derive(Debug, Eq, PartialEq)]
pub enum Readiness {
    /// Not yet, or it has begun already.
    Waiting,
    /// Yes, from now on.
    Ready,
    /// Yes, although the Node has no address after 30 s.
    ReadyWithoutAddresses,
}

/// What the first sync waits for.
///
/// Exhaustive: a proxy logs each of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lack {
    /// Complete lists of objects.
    Lists,
    /// The Node object. Its name may be wrong.
    Node,
    /// podCIDRs of the Node.
    PodCidrs,
    /// Addresses of the Node.
    Addresses,
}

impl FirstSyncGate {
    /// Creates a gate. Without `waits_for_node`, the gate does not wait for addresses and
    /// podCIDRs of the Node: missing podCIDRs then fail at once. It waits for ServiceCIDRs
    /// without a limit.
    pub fn new(node: Arc<str>, detect_local: &DetectLocal, waits_for_node: bool) -> Self {
        Self {
            node,
            needs_pod_cidrs: *detect_local == DetectLocal::NodeCidr,
            waits_for_node,
            missing: vec![
                Kind::Service,
                Kind::EndpointSlice,
                Kind::ServiceCidr,
                Kind::Node,
            ],
            node_listed: None,
            others_listed: None,
            current: None,
            is_impatient: false,
            is_open: false,
        }
    }

    /// Records a complete list of a kind.
    pub fn mark_listed(&mut self, kind: Kind, now: Duration) {
        self.missing.retain(|&missing| missing != kind);
        if kind == Kind::Node {
            self.node_listed.get_or_insert(now);
        }
        if self.missing.iter().all(|&kind| kind == Kind::ServiceCidr) {
            self.others_listed.get_or_insert(now);
        }
    }

    /// Records the Node and returns its changes.
    pub fn update_node(&mut self, node: &api::Node) -> NodeChange {
        if *node.metadata.name != *self.node {
            return NodeChange::None;
        }
        let (known, _) = NodeView::read(node);
        let news = match &self.current {
            Some(former) if *former == known => NodeChange::None,
            Some(former) if self.is_open => {
                if self.needs_pod_cidrs && former.pod_cidrs != known.pod_cidrs {
                    NodeChange::PodCidrs
                } else if former.addresses != known.addresses {
                    NodeChange::Addresses
                } else {
                    NodeChange::Other
                }
            }
            _ => NodeChange::Other,
        };
        self.current = Some(known);
        news
    }

    /// Returns whether the first sync may begin. The caller must poll after
    /// every change and at [`next_deadline`](Self::next_deadline).
    ///
    /// # Errors
    ///
    /// A message, if podCIDRs are needed and the Node has none, or does not exist, after
    /// five minutes.
    pub fn poll(&mut self, now: Duration) -> Result<Readiness, String> {
        let patient_until = self.patient_until();
        self.is_impatient = patient_until.is_some_and(|until| until <= now);
        if self.is_open || self.lacks_list(now) {
            return Ok(Readiness::Waiting);
        }
        if self.lacks_pod_cidrs() {
            return match self.is_over(POD_CIDRS_TIMEOUT, now) {
                true => Err(self.timeout_message()),
                false => Ok(Readiness::Waiting),
            };
        }
        if self.lacks_addresses() {
            if !self.is_over(ADDRESSES_TIMEOUT, now) {
                return Ok(Readiness::Waiting);
            }
            self.is_open = true;
            return Ok(Readiness::ReadyWithoutAddresses);
        }
        self.is_open = true;
        Ok(Readiness::Ready)
    }

    /// Returns the time of the next poll if nothing changes before.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.is_open {
            return None;
        }
        if !self.missing.is_empty() && !self.waits_for_node {
            return None;
        }
        let patient_until = self.patient_until()?;
        if !self.is_impatient {
            return Some(patient_until);
        }
        let limit = if self.lacks_pod_cidrs() {
            POD_CIDRS_TIMEOUT
        } else {
            ADDRESSES_TIMEOUT
        };
        self.node_listed?.checked_add(limit)
    }

    /// Returns what the first sync waits for at the last poll, if it has not begun. Addresses
    /// and podCIDRs of a Node count after two seconds.
    pub fn lack(&self) -> Option<Lack> {
        if self.is_open {
            None
        } else if self.node_listed.is_none() || self.others_listed.is_none() {
            Some(Lack::Lists)
        } else if self.current.is_none() {
            Some(Lack::Node)
        } else if !self.is_impatient {
            Some(Lack::Lists)
        } else if self.lacks_pod_cidrs() {
            Some(Lack::PodCidrs)
        } else if self.lacks_addresses() {
            Some(Lack::Addresses)
        } else {
            Some(Lack::Lists)
        }
    }

    fn patient_until(&self) -> Option<Duration> {
        self.others_listed?.checked_add(PATIENCE)
    }

    /// Returns whether the Node is known.
    pub fn has_node(&self) -> bool {
        self.current.is_some()
    }

    /// Returns whether a required list is missing.
    fn lacks_list(&self, now: Duration) -> bool {
        let is_over = self.service_cidrs_deadline().is_some_and(|at| at <= now);
        !self.missing.is_empty() && !is_over
    }

    /// Returns when the wait for ServiceCIDRs ends, if only they are missing.
    /// One-shot commands wait for ServiceCIDRs without a limit.
    fn service_cidrs_deadline(&self) -> Option<Duration> {
        let since = self.others_listed.filter(|_| self.waits_for_node)?;
        since.checked_add(SERVICE_CIDRS_TIMEOUT)
    }

    fn lacks_addresses(&self) -> bool {
        let known = self.current.as_ref();
        known.is_none_or(|known| known.addresses.is_empty())
    }

    fn lacks_pod_cidrs(&self) -> bool {
        let known = self.current.as_ref();
        self.needs_pod_cidrs && known.is_none_or(|known| known.pod_cidrs.is_empty())
    }

    fn is_over(&self, limit: Duration, now: Duration) -> bool {
        let waited = self
            .node_listed
            .map(|node_listed| now.saturating_sub(node_listed));
        !self.waits_for_node || waited.is_some_and(|waited| waited >= limit)
    }

    fn timeout_message(&self) -> String {
        let node = &self.node;
        match self.current {
            Some(_) => format!("timeout waiting for PodCIDR allocation on node {node:?}"),
            None => format!("timeout waiting for node {node:?} to exist"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn node(addresses: &[&str], pod_cidrs: &[&str]) -> api::Node {
        let mut node = api::Node::default();
        node.metadata.name = "n1".into();
        let address = |address: &&str| api::NodeAddress {
            kind: "InternalIP".into(),
            address: (*address).into(),
        };
        node.status.addresses = addresses.iter().map(address).collect();
        node.spec.pod_cidrs = pod_cidrs.iter().map(|&cidr| cidr.into()).collect();
        node
    }

    /// A gate for which everything was listed after 10 s.
    fn listed(detect_local: &DetectLocal) -> FirstSyncGate {
        let mut gate = FirstSyncGate::new("n1".into(), detect_local, true);
        for kind in [Kind::Node, Kind::EndpointSlice, Kind::ServiceCidr] {
            gate.mark_listed(kind, secs(10));
            assert_eq!(gate.poll(secs(1000)), Ok(Readiness::Waiting));
            assert_eq!(gate.next_deadline(), None, "time alone changes nothing");
        }
        gate.mark_listed(Kind::Service, secs(10));
        gate
    }

    fn anywhere() -> DetectLocal {
        DetectLocal::ClusterCidr(Vec::new())
    }

    #[test]
    fn the_gate_opens_once_when_everything_is_listed_and_the_node_has_an_address() {
        let mut gate = listed(&anywhere());
        assert_eq!(gate.poll(secs(11)), Ok(Readiness::Waiting));
        let mut other = node(&["10.0.0.9"], &[]);
        other.metadata.name = "n2".into();
        assert_eq!(gate.update_node(&other), NodeChange::None);
        assert_eq!(gate.poll(secs(11)), Ok(Readiness::Waiting));
        gate.update_node(&node(&["10.0.0.1"], &[]));
        assert_eq!(gate.poll(secs(11)), Ok(Readiness::Ready));
        assert_eq!(gate.poll(secs(11)), Ok(Readiness::Waiting));
        gate.mark_listed(Kind::Service, secs(12));
        assert!(gate.has_node() && gate.next_deadline().is_none());
    }

    #[test]
    fn the_first_sync_waits_two_seconds_for_service_cidrs() {
        for waits_for_node in [true, false] {
            let mut gate = FirstSyncGate::new("n1".into(), &anywhere(), waits_for_node);
            gate.update_node(&node(&["10.0.0.1"], &[]));
            for kind in [Kind::Node, Kind::EndpointSlice, Kind::Service] {
                assert_eq!(gate.poll(secs(1000)), Ok(Readiness::Waiting));
                gate.mark_listed(kind, secs(10));
            }
            assert_eq!(gate.poll(secs(11)), Ok(Readiness::Waiting));
            assert_eq!(gate.next_deadline(), waits_for_node.then_some(secs(12)));
            let verdict = match waits_for_node {
                true => Readiness::Ready,
                false => Readiness::Waiting,
            };
            assert_eq!(gate.poll(secs(12)), Ok(verdict));
        }
    }

    #[test]
    fn the_first_sync_waits_thirty_seconds_for_addresses() {
        let mut gate = listed(&anywhere());
        gate.update_node(&node(&[], &[]));
        assert_eq!(gate.poll(secs(12)), Ok(Readiness::Waiting));
        assert_eq!(gate.next_deadline(), Some(secs(40)));
        assert_eq!(gate.poll(secs(39)), Ok(Readiness::Waiting));
        assert_eq!(gate.poll(secs(40)), Ok(Readiness::ReadyWithoutAddresses));
    }

    #[test]
    fn the_first_sync_waits_five_minutes_for_required_pod_cidrs() {
        let mut gate = listed(&DetectLocal::NodeCidr);
        assert_eq!(gate.poll(secs(12)), Ok(Readiness::Waiting));
        assert_eq!(gate.next_deadline(), Some(secs(310)));
        assert_eq!(gate.poll(secs(309)), Ok(Readiness::Waiting));
        let missing = gate.poll(secs(310)).unwrap_err();
        assert_eq!(missing, "timeout waiting for node \"n1\" to exist");
        gate.update_node(&node(&["10.0.0.1"], &[]));
        let without = gate.poll(secs(310)).unwrap_err();
        assert_eq!(
            without,
            "timeout waiting for PodCIDR allocation on node \"n1\""
        );
        gate.update_node(&node(&["10.0.0.1"], &["10.1.0.0/24"]));
        assert_eq!(gate.poll(secs(310)), Ok(Readiness::Ready));
    }

    #[test]
    fn a_wait_for_addresses_or_pod_cidrs_counts_after_two_seconds() {
        for (detect_local, addresses, expected) in [
            (anywhere(), &[][..], Lack::Addresses),
            (DetectLocal::NodeCidr, &["10.0.0.1"], Lack::PodCidrs),
        ] {
            let mut gate = listed(&detect_local);
            assert_eq!(gate.poll(secs(10)), Ok(Readiness::Waiting));
            assert_eq!(gate.lack(), Some(Lack::Node));
            gate.update_node(&node(addresses, &[]));
            assert_eq!(gate.poll(secs(11)), Ok(Readiness::Waiting));
            assert_eq!(gate.lack(), Some(Lack::Lists), "{expected:?}");
            assert_eq!(gate.next_deadline(), Some(secs(12)));
            assert_eq!(gate.poll(secs(12)), Ok(Readiness::Waiting));
            assert_eq!(gate.lack(), Some(expected));
        }
    }

    #[test]
    fn a_gate_without_service_cidrs_has_no_deadline_in_the_past() {
        let mut gate = FirstSyncGate::new("n1".into(), &anywhere(), true);
        for kind in [Kind::Node, Kind::EndpointSlice, Kind::Service] {
            gate.mark_listed(kind, secs(10));
        }
        gate.update_node(&node(&[], &[]));
        for (now, deadline) in [(10, 12), (12, 40), (39, 40)] {
            assert_eq!(gate.poll(secs(now)), Ok(Readiness::Waiting));
            assert_eq!(gate.next_deadline(), Some(secs(deadline)));
        }
        assert_eq!(gate.poll(secs(40)), Ok(Readiness::ReadyWithoutAddresses));
    }

    #[test]
    fn a_gate_that_does_not_wait_for_the_node_decides_at_once() {
        let mut gate = listed(&anywhere());
        gate.waits_for_node = false;
        assert_eq!(gate.poll(secs(10)), Ok(Readiness::ReadyWithoutAddresses));
        let mut gate = listed(&DetectLocal::NodeCidr);
        gate.waits_for_node = false;
        assert!(gate.poll(secs(10)).is_err());
    }

    #[test]
    fn later_pod_cidr_changes_matter_in_mode_node_cidr_and_address_changes_always() {
        for (detect_local, expected) in [
            (anywhere(), NodeChange::Other),
            (DetectLocal::NodeCidr, NodeChange::PodCidrs),
        ] {
            let mut gate = listed(&detect_local);
            let mut news = |address, cidr| gate.update_node(&node(&[address], &[cidr]));
            assert_eq!(news("10.0.0.1", "10.9.0.0/24"), NodeChange::Other);
            assert_eq!(news("10.0.0.1", "10.1.0.0/24"), NodeChange::Other);
            assert_eq!(gate.poll(secs(10)), Ok(Readiness::Ready));
            let mut news = |address, cidr| gate.update_node(&node(&[address], &[cidr]));
            assert_eq!(news("10.0.0.1", "10.1.0.0/24"), NodeChange::None);
            assert_eq!(news("10.0.0.2", "10.1.0.0/24"), NodeChange::Addresses);
            assert_eq!(news("10.0.0.2", "10.2.0.0/24"), expected);
            let mut tainted = node(&["10.0.0.2"], &["10.2.0.0/24"]);
            tainted.metadata.deletion_timestamp = Some(String::new());
            assert_eq!(gate.update_node(&tainted), NodeChange::Other);
        }
    }
}
