//! Output of `iptables-save` for a cluster in mode iptables.

use std::fmt::{self, Write};

use crate::cluster::Size;

/// Denominator of probabilities in the kernel.
const STEPS: f64 = 2_147_483_648.0;

/// Returns the table `nat` with the chains and rules of a cluster.
///
/// Each Service has one TCP port. Chain names contain a number instead of a hash, with
/// the length of the hash.
///
/// # Errors
///
/// Never, because writing to a string does not fail.
pub fn save(size: Size) -> Result<String, fmt::Error> {
    let mut chains = "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-MARK-MASQ - [0:0]\n".to_owned();
    let (mut services, mut rules) = (String::new(), String::new());
    writeln!(chains, ":KUBE-SERVICES - [0:0]")?;
    for service in 0..size.services {
        let (chain, name) = (
            format!("KUBE-SVC-{service:016X}"),
            format!("default/svc-{service}:http"),
        );
        let [_, _, high, low] = (service as u32).to_be_bytes();
        let port = format!(
            "-d 10.96.{high}.{low}/32 -p tcp -m comment --comment \"{name} cluster IP\" -m tcp --dport 80"
        );
        writeln!(chains, ":{chain} - [0:0]")?;
        writeln!(services, "-A KUBE-SERVICES {port} -j {chain}")?;
        writeln!(
            rules,
            "-A {chain} ! -s 10.0.0.0/14 {port} -j KUBE-MARK-MASQ"
        )?;
        for left in (1..=size.endpoints).rev() {
            let endpoint = format!("KUBE-SEP-{service:014X}{left:02X}");
            let address = format!("10.{left}.{high}.{low}");
            writeln!(chains, ":{endpoint} - [0:0]")?;
            write!(
                rules,
                "-A {chain} -m comment --comment \"{name} -> {address}:8080\" "
            )?;
            if left > 1 {
                // The kernel stores a probability in 31 bits.
                let probability = (STEPS / left as f64).round() / STEPS;
                write!(
                    rules,
                    "-m statistic --mode random --probability {probability:.11} "
                )?;
            }
            writeln!(rules, "-j {endpoint}")?;
            let comment = format!("-m comment --comment \"{name}\"");
            writeln!(
                rules,
                "-A {endpoint} -s {address}/32 {comment} -j KUBE-MARK-MASQ"
            )?;
            writeln!(
                rules,
                "-A {endpoint} -p tcp {comment} -m tcp -j DNAT --to-destination {address}:8080"
            )?;
        }
    }
    Ok(chains + "-A OUTPUT -j KUBE-SERVICES\n" + &services + &rules + "COMMIT\n")
}

#[cfg(test)]
mod tests {
    use vipline_iptables::Tables;

    use super::*;

    #[test]
    fn a_save_has_the_rules_of_all_services() {
        let text = save(Size::new(10, 5)).unwrap();
        let tables = Tables::parse(&text).unwrap();
        let nat = tables.get("nat").unwrap();
        assert_eq!(nat.chains().count(), 3 + 10 * (1 + 5));
        assert_eq!(nat.rules().count(), 1 + 10 * (2 + 3 * 5));
        for line in nat.rules() {
            assert_eq!(line.rule().unwrap().to_string(), line.spec());
        }
    }
}
