//! Name servers and options of a file in the format of resolv.conf(5).

use std::net::SocketAddr;
use std::time::Duration;

use super::options::parse_upstream;

/// Largest `timeout`, in seconds, and largest `attempts` that glibc accepts.
const LARGEST_TIMEOUT: u64 = 30;
const LARGEST_ATTEMPTS: u32 = 5;

/// The settings that forwarding uses. Unknown lines and options are ignored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ResolvConf {
    pub(super) name_servers: Vec<SocketAddr>,
    /// Words of `nameserver` lines that are no usable address.
    pub(super) unusable: Vec<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) attempts: Option<u32>,
    pub(super) rotate: bool,
}

impl ResolvConf {
    /// Parses a file.
    pub(super) fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => words.next().into_iter().for_each(|word| parsed.add(word)),
                Some("options") => words.for_each(|option| parsed.set(option)),
                _ => {}
            }
        }
        parsed
    }

    fn add(&mut self, word: &str) {
        match parse_upstream(word) {
            Ok(address) if self.name_servers.contains(&address) => {}
            Ok(address) => self.name_servers.push(address),
            Err(_) => self.unusable.push(word.to_owned()),
        }
    }

    fn set(&mut self, option: &str) {
        match option.split_once(':') {
            Some(("timeout", value)) => {
                if let Ok(seconds) = value.parse::<u64>() {
                    self.timeout = Some(Duration::from_secs(seconds.clamp(1, LARGEST_TIMEOUT)));
                }
            }
            Some(("attempts", value)) => {
                if let Ok(attempts) = value.parse::<u32>() {
                    self.attempts = Some(attempts.clamp(1, LARGEST_ATTEMPTS));
                }
            }
            None if option == "rotate" => self.rotate = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_and_options_are_read() {
        let parsed = ResolvConf::parse(
            "# a comment\n; another\nsearch a.example b.example\nnameserver 10.0.0.1\n\
             nameserver\tfd00::1 trailing\nnameserver 10.0.0.1\noptions ndots:5 timeout:3\n\
             options attempts:4 rotate edns0\n",
        );
        assert_eq!(
            parsed,
            ResolvConf {
                name_servers: vec![
                    "10.0.0.1:53".parse().unwrap(),
                    "[fd00::1]:53".parse().unwrap()
                ],
                unusable: Vec::new(),
                timeout: Some(Duration::from_secs(3)),
                attempts: Some(4),
                rotate: true,
            }
        );
    }

    #[test]
    fn malformed_lines_are_ignored() {
        let parsed = ResolvConf::parse(
            "nameserver\nnameserver dns.example\nnameserver 0.0.0.0\n#nameserver 10.0.0.1\n\
             nameserver fe80::1%eth0\noptions timeout: attempts:x timeout:-1\n\u{0}\nnameserver 10.0.0.2",
        );
        assert_eq!(parsed.name_servers, ["10.0.0.2:53".parse().unwrap()]);
        let unusable = ["dns.example", "0.0.0.0", "fe80::1%eth0"];
        assert_eq!(parsed.unusable, unusable);
        assert_eq!(
            (parsed.timeout, parsed.attempts, parsed.rotate),
            (None, None, false)
        );
    }

    #[test]
    fn values_have_the_bounds_of_glibc() {
        let parsed = ResolvConf::parse("options timeout:100 attempts:100");
        assert_eq!(parsed.timeout, Some(Duration::from_secs(30)));
        assert_eq!(parsed.attempts, Some(5));
        let parsed = ResolvConf::parse("options timeout:0 attempts:0");
        assert_eq!(parsed.timeout, Some(Duration::from_secs(1)));
        assert_eq!(parsed.attempts, Some(1));
    }
}
