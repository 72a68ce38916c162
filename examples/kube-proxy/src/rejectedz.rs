//! `/rejectedz`: what a running proxy does not serve: objects that the kernel rejected, which
//! `diff` reads, and the parts of Services beyond a limit.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use proxy_core::{Family, KnownRejections, RejectedObject};
use serde::{Deserialize, Serialize};
use vipline_service_model::{ObjectName, OverLimit};

use crate::settings::Settings;

/// What a proxy does not serve, as of its last sync.
#[derive(Clone, Debug, Default)]
pub struct Unserved {
    /// Objects that the kernel rejected.
    pub rejected: Vec<(Family, Arc<RejectedObject>)>,
    /// Parts of Services beyond a limit.
    pub over_limit: Vec<(ObjectName, OverLimit)>,
}

/// Path of the page, at the port for metrics.
pub const PATH: &str = "/rejectedz";

/// Connect timeout, and maximum time between two parts of the response.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of a response.
const MAX_BYTES: u64 = 64 << 20;

/// The page of rejected objects.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Mode of the proxy.
    mode: String,
    /// Node of the proxy.
    node: String,
    objects: Vec<Object>,
}

/// A rejected object.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    ip_family: String,
    /// The service port of the object. After a removal, the service port that
    /// had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_port: Option<String>,
    /// The object in the syntax of the mode's tool.
    object: String,
    /// Whether the kernel refused to remove the object.
    is_removal: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    /// Error message of the kernel, or the limit.
    reason: String,
    /// Whether the object is a field of a Service of which a part is beyond a limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_over_limit: bool,
}

impl Page {
    /// Creates the page. Objects are sorted.
    pub fn new(mode: &str, node: &str, unserved: &Unserved) -> Self {
        let objects = unserved.rejected.iter().map(|(family, rejected)| Object {
            ip_family: family.to_string(),
            service_port: rejected.owner.as_ref().map(ToString::to_string),
            object: rejected.object.clone(),
            is_removal: rejected.is_removal,
            errno: rejected.reason.errno,
            reason: rejected.reason.to_string(),
            is_over_limit: false,
        });
        let beyond = unserved.over_limit.iter().map(|(service, it)| Object {
            ip_family: it.family.to_string(),
            service_port: Some(service.to_string()),
            object: it.field.to_owned(),
            is_removal: false,
            errno: None,
            reason: it.to_string(),
            is_over_limit: true,
        });
        let mut objects: Vec<_> = objects.chain(beyond).collect();
        objects.sort_unstable();
        Self {
            mode: mode.to_owned(),
            node: node.to_owned(),
            objects,
        }
    }

    /// Returns the page as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).map_or_else(|_| String::new(), |text| text + "\n")
    }

    /// Requests the page of the running proxy with the same settings.
    ///
    /// Returns `None` if no proxy answers, or a proxy of another mode or node
    /// answers.
    pub fn request(settings: &Settings) -> Option<Self> {
        let body = get(settings.metrics?, PATH).ok()?;
        let page: Self = serde_json::from_str(&body).ok()?;
        let is_same = page.mode == settings.config.mode.name()
            && *page.node == *settings.config.engine.node_name;
        is_same.then_some(page)
    }

    /// Returns the objects in the form that the engine compares.
    pub fn known(&self) -> KnownRejections {
        let mut known = KnownRejections::default();
        for object in self.objects.iter().filter(|it| !it.is_over_limit) {
            let families = [Family::V4, Family::V6].into_iter();
            let mut families = families.filter(|it| it.to_string() == object.ip_family);
            if let Some(family) = families.next() {
                known.insert(family, object.is_removal, object.object.clone());
            }
        }
        known
    }

    /// Returns one comment line per object.
    pub fn comments(&self) -> String {
        let mut text = String::new();
        for it in &self.objects {
            let port = it.service_port.iter().map(|port| format!("{port}: "));
            let port: String = port.collect();
            let removal = if it.is_removal { "removal of " } else { "" };
            let (family, object, reason) = (&it.ip_family, &it.object, one_line(&it.reason));
            if it.is_over_limit {
                let _ = writeln!(text, "# beyond a limit: {family}: {port}{object}: {reason}");
                continue;
            }
            let _ = writeln!(
                text,
                "# rejected by the kernel: {family}: {port}{removal}{object}: {reason}"
            );
        }
        text
    }
}

/// Replaces line breaks by spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the address to connect to for a server that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Requests a page of the server that listens on `address`, and returns the body of the
/// response.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let address = reachable(address);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.take(MAX_BYTES).read_to_string(&mut response)?;
    let body = response.strip_prefix("HTTP/1.1 200 ");
    let body = body.and_then(|rest| rest.split_once("\r\n\r\n"));
    body.map(|(_, body)| body.to_owned())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use proxy_core::Mode;

    use super::*;

    #[test]
    fn comments_name_port_object_and_reason_in_one_line() {
        let json = r#"{"mode": "ipvs", "node": "n1", "objects": [
            {"ipFamily": "IPv4", "servicePort": "shop/web:http", "object": "-a -t 10.96.0.1:80",
             "isRemoval": false, "errno": 22, "reason": "invalid\nargument"},
            {"ipFamily": "IPv4", "servicePort": "shop/big", "object": "spec.externalIPs",
             "isRemoval": false, "reason": "not served", "isOverLimit": true},
            {"ipFamily": "IPv6", "object": "-D -t [::1]:80", "isRemoval": true, "reason": "busy"}]}"#;
        let page: Page = serde_json::from_str(json).unwrap();
        assert_eq!(
            page.comments(),
            "# rejected by the kernel: IPv4: shop/web:http: -a -t 10.96.0.1:80: invalid argument\n\
             # beyond a limit: IPv4: shop/big: spec.externalIPs: not served\n\
             # rejected by the kernel: IPv6: removal of -D -t [::1]:80: busy\n"
        );
        assert_eq!(serde_json::from_str::<Page>(&page.to_json()).unwrap(), page);
        assert_eq!(
            Page::new(Mode::Ipvs.name(), "n1", &Unserved::default()).objects,
            []
        );
    }

    #[test]
    fn a_wildcard_is_reached_at_the_loopback_address_of_its_family() {
        for (address, expected) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("192.0.2.1:1", "192.0.2.1:1"),
        ] {
            let expected: SocketAddr = expected.parse().unwrap();
            assert_eq!(reachable(address.parse().unwrap()), expected);
        }
    }
}
