//! What rules of mode iptables count by nfacct, read when somebody asks.

use tracing::debug;
use vipline_iptables::nfacct::{Client, Error, Name};

use super::exposition::{Page, Type, float};

/// A metric and the counter behind it, upstream's both.
struct Shown {
    metric: &'static str,
    help: &'static str,
    counter: &'static str,
}

const SHOWN: [Shown; 2] = [
    Shown {
        metric: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
        help: "[ALPHA] Packets dropped because conntrack took them for invalid",
        counter: "ct_state_invalid_dropped_pkts",
    },
    Shown {
        metric: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
        help: "[ALPHA] Packets to node ports on loopback addresses",
        counter: "localhost_nps_accepted_pkts",
    },
];

/// Adds the counters of the network namespace, as far as the kernel has them.
pub(super) fn add_to(page: &mut Page) {
    if let Err(error) = read(page) {
        debug!("counters of nfacct are not shown: {error}");
    }
}

fn read(page: &mut Page) -> Result<(), Error> {
    let mut client = Client::open()?;
    for shown in SHOWN {
        let name = Name::new(shown.counter).expect("it is a name");
        match client.get(&name) {
            Ok(counter) => page
                .add(shown.metric, Type::Counter, shown.help)
                .value(&[], float(counter.packets)),
            // Upstream shows nothing of a counter that is not there, either.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
