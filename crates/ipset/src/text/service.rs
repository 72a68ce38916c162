//! Service names of ports, as in `/etc/services`.

use crate::Protocol;

/// Lines with a name, a port number and the protocols of a service.
const SERVICES: &str = include_str!("services.txt");

/// Returns the port of a service. Names are case-sensitive.
pub(super) fn port(protocol: Protocol, name: &str) -> Option<u16> {
    let protocol = protocol.name()?;
    let mut services = SERVICES.lines().map(|line| line.split(' '));
    services.find_map(|mut words| {
        let is_named = words.next() == Some(name);
        let number = words.next()?.parse().ok()?;
        (is_named && words.any(|word| word == protocol)).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_ports_of_their_protocols() {
        assert_eq!(port(Protocol::TCP, "smtp"), Some(25));
        assert_eq!(port(Protocol::UDP, "domain"), Some(53));
        assert_eq!(port(Protocol::UDP, "smtp"), None);
        assert_eq!(port(Protocol::TCP, "tcp"), None);
        assert_eq!(port(Protocol::TCP, ""), None);
        for line in SERVICES.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(
                words.len() >= 3 && words[1].parse::<u16>().is_ok(),
                "{line}"
            );
        }
    }
}
