//! The cost of a change: commands and bytes that a sync sends.
//!
//! The cost is limited by the size of the change. Other Services do not increase the
//! cost.

use std::fmt::Write;
use std::iter;

use proxy_core::Family;
use proxy_core::backend::{iptables, ipvs, nftables};
use serde_json::json;
use testworld::{Change, Verb};
use vipline_nftables::Transaction;
use vipline_reconcile::Edit;
use vipline_service_model::Kind;

use crate::decode::decode;
use crate::history::{Verdict, check, history};
use crate::laws::Run;
use crate::memory::ModePlanner;

/// Number of other Services.
const OTHERS: usize = 40;

/// Maximum number of commands for one endpoint of one service port at one address.
const COMMANDS: usize = 12;

/// Maximum bytes of a command. A chain of mode iptables names all endpoints of a
/// Service, with one command per endpoint.
const BYTES: usize = 400;

/// Additional bytes of mode iptables, because rule positions have more digits in a
/// larger cluster.
const SLACK: usize = 64;

/// Messages of a sync for one family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Cost {
    /// Edited objects.
    pub(crate) edits: usize,
    /// Operations of the batch, or lines of the text that the native tool reads.
    pub(crate) commands: usize,
    /// Bytes of the batch or text.
    pub(crate) bytes: usize,
}

/// A mode whose syncs are counted.
pub(crate) trait Mode: ModePlanner {
    /// Returns the cost of edits.
    fn cost(family: Family, edits: &[Edit<Self::Object>]) -> Cost {
        let text = Self::script(family, edits.to_vec(), iter::empty());
        Cost {
            edits: edits.len(),
            commands: text.lines().count(),
            bytes: text.len(),
        }
    }
}

impl Mode for nftables::Planner {
    fn cost(_: Family, edits: &[Edit<Self::Object>]) -> Cost {
        let transaction = Transaction::from_edits(edits);
        Cost {
            edits: edits.len(),
            commands: transaction.to_string().lines().count(),
            bytes: transaction.encode(1, None).bytes().len(),
        }
    }
}

impl Mode for iptables::Planner {}

impl Mode for ipvs::Planner {}

impl Cost {
    /// Returns an error if the cost exceeds the limit for a change. The size is the
    /// number of endpoints of service ports, times their addresses.
    pub(crate) fn check_limit(self, size: usize) -> Verdict {
        let commands = COMMANDS * (1 + size);
        let is_within = self.edits <= commands
            && self.commands <= 2 * commands
            && self.bytes <= 2 * commands * BYTES;
        match is_within {
            true => Ok(()),
            false => Err(format!("{self:?} for a change of size {size}")),
        }
    }
}

/// Returns Services that do not occur in histories, each with two endpoints.
fn others() -> Vec<Change> {
    let other = |number: usize| {
        let name = format!("other-{number}");
        let metadata = |name: &str| {
            json!({
                "name": name, "namespace": "others", "creationTimestamp": "2025-01-01T00:00:00Z",
                "labels": {"kubernetes.io/service-name": format!("other-{number}")},
            })
        };
        let port = json!({
            "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080,
            "nodePort": 32_000 + number,
        });
        let service = json!({
            "metadata": metadata(&name),
            "spec": {
                "type": "NodePort", "clusterIP": format!("10.99.0.{}", number + 1),
                "clusterIPs": [format!("10.99.0.{}", number + 1)], "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
                "ports": [port],
            },
        });
        let addresses = [1, 2].map(|last| format!("10.250.{number}.{last}"));
        let endpoints = addresses.map(|address| json!({"addresses": [address]}));
        let slice = json!({
            "metadata": metadata(&format!("{name}-1")),
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        });
        [(Kind::Service, service), (Kind::EndpointSlice, slice)]
    };
    let objects = (0..OTHERS).flat_map(other);
    let added = objects.map(|(kind, object)| Change {
        kind,
        verb: Verb::Added,
        object,
    });
    added.collect()
}

/// Applies a history to an empty cluster and to a cluster with other Services, and
/// compares the costs.
fn compare_costs<P: Mode>(changes: &[Change]) -> Verdict
where
    P::Object: Send + Sync + 'static,
{
    let mut alone = Run::<P>::start_with([])?;
    let mut beside = Run::<P>::start_with(others().iter().filter_map(decode))?;
    for change in changes {
        let Some(event) = decode(change) else {
            continue;
        };
        alone.step(event.clone())?;
        beside.step(event)?;
        for (alone, beside) in alone.costs.into_iter().zip(beside.costs) {
            // All node ports have objects with the addresses of the node. Other
            // Services may already use a shared object, so a change may cost less.
            let ports = match change.kind {
                Kind::Node => OTHERS,
                Kind::Service | Kind::EndpointSlice | Kind::Namespace | Kind::ServiceCidr => 0,
            };
            let is_alike = beside.edits <= alone.edits + COMMANDS * ports
                && beside.commands <= alone.commands + 2 * COMMANDS * ports
                && beside.bytes <= alone.bytes + SLACK + 2 * COMMANDS * ports * BYTES;
            if !is_alike {
                let mut text = format!("alone {alone:?}, beside others {beside:?}:");
                write!(text, " {}", change.line()).map_err(|error| error.to_string())?;
                return Err(text);
            }
        }
    }
    Ok(())
}

#[test]
fn other_services_do_not_increase_the_cost_of_a_change() {
    check(
        300,
        |seed| history((2 << 32) + seed, 12, u8::MAX),
        |seed, changes| match seed % 3 {
            0 => compare_costs::<nftables::Planner>(changes),
            1 => compare_costs::<iptables::Planner>(changes),
            _ => compare_costs::<ipvs::Planner>(changes),
        },
    );
}
