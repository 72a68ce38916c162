//! nfacct counters of the rules of mode iptables, read for each page.

use tracing::debug;
use vipline_iptables::nfacct::{Client, Error, Name};

use daemon::metrics::{Page, Type, float};

/// A metric and its counter, both with upstream's names.
struct CounterMetric {
    metric: &'static str,
    help: &'static str,
    counter: &'static str,
}

const SHOWN: [CounterMetric; 2] = [
    CounterMetric {
        metric: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
        help: "[ALPHA] Packets in conntrack state INVALID that were dropped",
        counter: "ct_state_invalid_dropped_pkts",
    },
    CounterMetric {
        metric: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
        help: "[ALPHA] Packets to node ports on loopback addresses",
        counter: "localhost_nps_accepted_pkts",
    },
];

/// Adds the counters that exist in the network namespace.
pub(super) fn add_to(page: &mut Page) {
    if let Err(error) = read(page) {
        debug!("nfacct counters cannot be read: {error}");
    }
}

fn read(page: &mut Page) -> Result<(), Error> {
    let mut client = Client::open()?;
    for shown in SHOWN {
        let name = Name::new(shown.counter).expect("a valid name");
        match client.get(&name) {
            Ok(counter) => page
                .add(shown.metric, Type::Counter, shown.help)
                .value(&[], float(counter.packets)),
            // As in upstream, a missing counter has no metric.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
