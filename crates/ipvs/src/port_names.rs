//! Ports of services by name.

use crate::Transport::{self, Sctp, Tcp, Udp};

/// Names of services, their ports and protocols, in the order of ports. Names and ports
/// are those of the IANA registry.
const SERVICES: &[(&str, u16, &[Transport])] = &[
    ("echo", 7, &[Tcp, Udp]),
    ("discard", 9, &[Tcp, Udp]),
    ("daytime", 13, &[Tcp, Udp]),
    ("chargen", 19, &[Tcp, Udp]),
    ("ftp", 21, &[Tcp]),
    ("ssh", 22, &[Tcp]),
    ("telnet", 23, &[Tcp]),
    ("smtp", 25, &[Tcp]),
    ("time", 37, &[Tcp, Udp]),
    ("domain", 53, &[Tcp, Udp]),
    ("bootps", 67, &[Udp]),
    ("bootpc", 68, &[Udp]),
    ("tftp", 69, &[Udp]),
    ("gopher", 70, &[Tcp]),
    ("finger", 79, &[Tcp]),
    ("http", 80, &[Tcp]),
    ("kerberos", 88, &[Tcp, Udp]),
    ("pop3", 110, &[Tcp]),
    ("sunrpc", 111, &[Tcp, Udp]),
    ("nntp", 119, &[Tcp]),
    ("ntp", 123, &[Udp]),
    ("epmap", 135, &[Tcp]),
    ("netbios-ns", 137, &[Udp]),
    ("imap2", 143, &[Tcp]),
    ("snmp", 161, &[Tcp, Udp]),
    ("snmp-trap", 162, &[Tcp, Udp]),
    ("bgp", 179, &[Tcp]),
    ("ldap", 389, &[Tcp, Udp]),
    ("https", 443, &[Tcp, Udp]),
    ("microsoft-ds", 445, &[Tcp]),
    ("submissions", 465, &[Tcp]),
    ("isakmp", 500, &[Udp]),
    ("syslog", 514, &[Udp]),
    ("printer", 515, &[Tcp]),
    ("rtsp", 554, &[Tcp, Udp]),
    ("submission", 587, &[Tcp]),
    ("ipp", 631, &[Tcp]),
    ("ldaps", 636, &[Tcp, Udp]),
    ("kerberos-adm", 749, &[Tcp]),
    ("domain-s", 853, &[Tcp, Udp]),
    ("rsync", 873, &[Tcp]),
    ("ftps", 990, &[Tcp]),
    ("telnets", 992, &[Tcp]),
    ("imaps", 993, &[Tcp]),
    ("pop3s", 995, &[Tcp]),
    ("openvpn", 1194, &[Tcp, Udp]),
    ("ms-sql-s", 1433, &[Tcp]),
    ("radius", 1812, &[Tcp, Udp]),
    ("radius-acct", 1813, &[Tcp, Udp]),
    ("nfs", 2049, &[Tcp, Udp]),
    ("cvspserver", 2401, &[Tcp]),
    ("iscsi-target", 3260, &[Tcp]),
    ("mysql", 3306, &[Tcp]),
    ("ms-wbt-server", 3389, &[Tcp]),
    ("svn", 3690, &[Tcp]),
    ("sip", 5060, &[Tcp, Udp]),
    ("sip-tls", 5061, &[Tcp, Udp]),
    ("xmpp-client", 5222, &[Tcp]),
    ("xmpp-server", 5269, &[Tcp]),
    ("postgresql", 5432, &[Tcp]),
    ("nrpe", 5666, &[Tcp]),
    ("amqps", 5671, &[Tcp]),
    ("amqp", 5672, &[Tcp, Sctp]),
    ("x11", 6000, &[Tcp]),
    ("redis", 6379, &[Tcp]),
    ("ircs-u", 6697, &[Tcp]),
    ("http-alt", 8080, &[Tcp]),
    ("puppet", 8140, &[Tcp]),
    ("git", 9418, &[Tcp]),
    ("zabbix-agent", 10050, &[Tcp]),
];

/// Returns the port of a service by name. Names are case-sensitive.
pub(crate) fn port(name: &str, protocol: Transport) -> Option<u16> {
    let mut services = SERVICES.iter();
    let found =
        services.find(|(known, _, protocols)| *known == name && protocols.contains(&protocol));
    found.map(|(_, port, _)| *port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_their_protocol() {
        assert_eq!(port("http", Tcp), Some(80));
        assert_eq!(port("http", Udp), None);
        assert_eq!(port("domain", Udp), Some(53));
        assert_eq!(port("amqp", Sctp), Some(5672));
        assert!(SERVICES.is_sorted_by_key(|(_, port, _)| *port));
    }
}
