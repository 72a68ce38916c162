//! Service names of ports, as in `/etc/services`.

/// Lines with a name, a port number and the protocols of a service.
const SERVICES: &str = include_str!("services.txt");

/// Returns the port of a service. Names are case-sensitive.
pub(super) fn port(protocol: u8, name: &str) -> Option<u16> {
    let protocol = super::protocol::name(protocol)?;
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
        assert_eq!(port(6, "smtp"), Some(25));
        assert_eq!(port(17, "domain"), Some(53));
        assert_eq!(port(17, "smtp"), None);
        assert_eq!(port(6, "tcp"), None);
        assert_eq!(port(6, ""), None);
        for line in SERVICES.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(
                words.len() >= 3 && words[1].parse::<u16>().is_ok(),
                "{line}"
            );
        }
    }
}
