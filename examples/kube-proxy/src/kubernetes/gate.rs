//! When enough is known to begin, and what the Node may say afterwards.

use std::sync::Arc;
use std::time::Duration;

use vipline_service_model::{DetectLocal, Kind, NodeView, api};

/// How long it is waited for the addresses of the Node.
const ADDRESSES: Duration = Duration::from_secs(30);

/// How long it is waited for the networks of the Node's pods, where they matter.
const POD_CIDRS: Duration = Duration::from_secs(300);

/// How long the first sync waits for ServiceCIDRs when all other kinds are listed.
///
/// Upstream does not wait at all. A short wait spares a restarted proxy from
/// removing rules about ServiceCIDRs and adding them again.
const SERVICE_CIDRS: Duration = Duration::from_secs(2);

/// What must be known before the first sync.
///
/// All objects must have been listed once, ServiceCIDRs within a short time;
/// then it is waited for what the Node does not say yet, for some time.
#[derive(Debug)]
pub struct Gate {
    node: Arc<str>,
    needs_pod_cidrs: bool,
    /// Whether the Node may take its time.
    is_patient: bool,
    /// The kinds that have not been listed.
    missing: Vec<Kind>,
    /// When the Node was first asked for.
    asked: Option<Duration>,
    /// When all kinds but ServiceCIDRs were listed.
    others_listed: Option<Duration>,
    known: Option<NodeView>,
    is_open: bool,
}

/// What a Node says that it did not say before.
#[derive(Debug, Eq, PartialEq)]
pub enum News {
    /// Nothing that matters.
    Nothing,
    /// Something that the engine follows.
    Something,
    /// It has other addresses, which the engine follows.
    Addresses,
    /// Its pods have other networks, which the process cannot take up.
    PodCidrs,
}

/// Whether enough is known.
#[derive(Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No, or not for the first time.
    Wait,
    /// Now it is.
    Open,
    /// Now it must be, though the Node has no address.
    OpenWithoutAddresses,
}

impl Gate {
    /// Returns a gate for a node; without patience it is not waited for the Node.
    pub fn new(node: Arc<str>, detect_local: &DetectLocal, is_patient: bool) -> Self {
        Self {
            node,
            needs_pod_cidrs: *detect_local == DetectLocal::NodeCidr,
            is_patient,
            missing: vec![
                Kind::Service,
                Kind::EndpointSlice,
                Kind::ServiceCidr,
                Kind::Node,
            ],
            asked: None,
            others_listed: None,
            known: None,
            is_open: false,
        }
    }

    /// Takes note that all objects of a kind have been told of.
    pub fn listed(&mut self, kind: Kind, now: Duration) {
        self.missing.retain(|&missing| missing != kind);
        if kind == Kind::Node {
            self.asked.get_or_insert(now);
        }
        if self.missing.iter().all(|&kind| kind == Kind::ServiceCidr) {
            self.others_listed.get_or_insert(now);
        }
    }

    /// Takes note of what the Node is now.
    pub fn node(&mut self, node: &api::Node) -> News {
        if *node.metadata.name != *self.node {
            return News::Nothing;
        }
        let (known, _) = NodeView::read(node);
        let news = match &self.known {
            Some(former) if *former == known => News::Nothing,
            Some(former) if self.is_open => {
                if self.needs_pod_cidrs && former.pod_cidrs != known.pod_cidrs {
                    News::PodCidrs
                } else if former.addresses != known.addresses {
                    News::Addresses
                } else {
                    News::Something
                }
            }
            _ => News::Something,
        };
        self.known = Some(known);
        news
    }

    /// Tells whether enough is known now; to be called whenever something came.
    ///
    /// # Errors
    ///
    /// What the Node does not say though it was waited for it.
    pub fn poll(&mut self, now: Duration) -> Result<Verdict, String> {
        if self.is_open || self.lacks_list(now) {
            return Ok(Verdict::Wait);
        }
        if self.lacks_pod_cidrs() {
            return match self.is_over(POD_CIDRS, now) {
                true => Err(self.complaint()),
                false => Ok(Verdict::Wait),
            };
        }
        if self.lacks_addresses() {
            if !self.is_over(ADDRESSES, now) {
                return Ok(Verdict::Wait);
            }
            self.is_open = true;
            return Ok(Verdict::OpenWithoutAddresses);
        }
        self.is_open = true;
        Ok(Verdict::Open)
    }

    /// Returns when to poll although nothing came.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.is_open {
            return None;
        }
        if !self.missing.is_empty() {
            return self.service_cidrs_deadline();
        }
        let patience = if self.lacks_pod_cidrs() {
            POD_CIDRS
        } else {
            ADDRESSES
        };
        self.asked?.checked_add(patience)
    }

    /// Tells whether the Node is known.
    pub fn has_node(&self) -> bool {
        self.known.is_some()
    }

    /// Returns whether something must be listed before the first sync.
    fn lacks_list(&self, now: Duration) -> bool {
        let is_over = self.service_cidrs_deadline().is_some_and(|at| at <= now);
        !self.missing.is_empty() && !is_over
    }

    /// Returns when ServiceCIDRs are no longer waited for, if they are all that
    /// is missing. A command, which has no patience, needs them.
    fn service_cidrs_deadline(&self) -> Option<Duration> {
        let since = self.others_listed.filter(|_| self.is_patient)?;
        since.checked_add(SERVICE_CIDRS)
    }

    fn lacks_addresses(&self) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|known| known.addresses.is_empty())
    }

    fn lacks_pod_cidrs(&self) -> bool {
        let known = self.known.as_ref();
        self.needs_pod_cidrs && known.is_none_or(|known| known.pod_cidrs.is_empty())
    }

    fn is_over(&self, patience: Duration, now: Duration) -> bool {
        let waited = self.asked.map(|asked| now.saturating_sub(asked));
        !self.is_patient || waited.is_some_and(|waited| waited >= patience)
    }

    fn complaint(&self) -> String {
        let node = &self.node;
        match self.known {
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

    /// A gate before which everything was listed after ten seconds.
    fn listed(detect_local: &DetectLocal) -> Gate {
        let mut gate = Gate::new("n1".into(), detect_local, true);
        for kind in [Kind::Node, Kind::EndpointSlice, Kind::ServiceCidr] {
            gate.listed(kind, secs(10));
            assert_eq!(gate.poll(secs(1000)), Ok(Verdict::Wait));
            assert_eq!(gate.next_deadline(), None, "time alone changes nothing");
        }
        gate.listed(Kind::Service, secs(10));
        gate
    }

    fn anywhere() -> DetectLocal {
        DetectLocal::ClusterCidr(Vec::new())
    }

    #[test]
    fn it_opens_once_when_everything_is_listed_and_the_node_has_an_address() {
        let mut gate = listed(&anywhere());
        assert_eq!(gate.poll(secs(11)), Ok(Verdict::Wait));
        let mut other = node(&["10.0.0.9"], &[]);
        other.metadata.name = "n2".into();
        assert_eq!(gate.node(&other), News::Nothing);
        assert_eq!(gate.poll(secs(11)), Ok(Verdict::Wait));
        gate.node(&node(&["10.0.0.1"], &[]));
        assert_eq!(gate.poll(secs(11)), Ok(Verdict::Open));
        assert_eq!(gate.poll(secs(11)), Ok(Verdict::Wait));
        gate.listed(Kind::Service, secs(12));
        assert!(gate.has_node() && gate.next_deadline().is_none());
    }

    #[test]
    fn it_waits_two_seconds_for_service_cidrs() {
        for is_patient in [true, false] {
            let mut gate = Gate::new("n1".into(), &anywhere(), is_patient);
            gate.node(&node(&["10.0.0.1"], &[]));
            for kind in [Kind::Node, Kind::EndpointSlice, Kind::Service] {
                assert_eq!(gate.poll(secs(1000)), Ok(Verdict::Wait));
                gate.listed(kind, secs(10));
            }
            assert_eq!(gate.poll(secs(11)), Ok(Verdict::Wait));
            assert_eq!(gate.next_deadline(), is_patient.then_some(secs(12)));
            let verdict = match is_patient {
                true => Verdict::Open,
                false => Verdict::Wait,
            };
            assert_eq!(gate.poll(secs(12)), Ok(verdict));
        }
    }

    #[test]
    fn it_waits_thirty_seconds_for_addresses() {
        let mut gate = listed(&anywhere());
        gate.node(&node(&[], &[]));
        assert_eq!(gate.next_deadline(), Some(secs(40)));
        assert_eq!(gate.poll(secs(39)), Ok(Verdict::Wait));
        assert_eq!(gate.poll(secs(40)), Ok(Verdict::OpenWithoutAddresses));
    }

    #[test]
    fn it_waits_five_minutes_for_pod_cidrs_where_they_matter() {
        let mut gate = listed(&DetectLocal::NodeCidr);
        assert_eq!(gate.next_deadline(), Some(secs(310)));
        assert_eq!(gate.poll(secs(309)), Ok(Verdict::Wait));
        let missing = gate.poll(secs(310)).unwrap_err();
        assert_eq!(missing, "timeout waiting for node \"n1\" to exist");
        gate.node(&node(&["10.0.0.1"], &[]));
        let without = gate.poll(secs(310)).unwrap_err();
        assert_eq!(
            without,
            "timeout waiting for PodCIDR allocation on node \"n1\""
        );
        gate.node(&node(&["10.0.0.1"], &["10.1.0.0/24"]));
        assert_eq!(gate.poll(secs(310)), Ok(Verdict::Open));
    }

    #[test]
    fn without_patience_it_decides_at_once() {
        let mut gate = listed(&anywhere());
        gate.is_patient = false;
        assert_eq!(gate.poll(secs(10)), Ok(Verdict::OpenWithoutAddresses));
        let mut gate = listed(&DetectLocal::NodeCidr);
        gate.is_patient = false;
        assert!(gate.poll(secs(10)).is_err());
    }

    #[test]
    fn afterwards_other_pod_cidrs_matter_in_their_mode_and_addresses_always() {
        for (detect_local, expected) in [
            (anywhere(), News::Something),
            (DetectLocal::NodeCidr, News::PodCidrs),
        ] {
            let mut gate = listed(&detect_local);
            let mut news = |address, cidr| gate.node(&node(&[address], &[cidr]));
            assert_eq!(news("10.0.0.1", "10.9.0.0/24"), News::Something);
            assert_eq!(news("10.0.0.1", "10.1.0.0/24"), News::Something);
            assert_eq!(gate.poll(secs(10)), Ok(Verdict::Open));
            let mut news = |address, cidr| gate.node(&node(&[address], &[cidr]));
            assert_eq!(news("10.0.0.1", "10.1.0.0/24"), News::Nothing);
            assert_eq!(news("10.0.0.2", "10.1.0.0/24"), News::Addresses);
            assert_eq!(news("10.0.0.2", "10.2.0.0/24"), expected);
            let mut tainted = node(&["10.0.0.2"], &["10.2.0.0/24"]);
            tainted.metadata.deletion_timestamp = Some(String::new());
            assert_eq!(gate.node(&tainted), News::Something);
        }
    }
}
