//! The HTTP client, with or without a proxy.

use std::error::Error as StdError;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Request, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt};
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, ServiceBuilder};

use super::access::error_chain;
use super::bearer::Bearer;
use super::request_metrics::RequestMetricsLayer;
use super::socks::SocksConnector;

/// Time without a packet from the other end after which the kernel probes a connection.
///
/// A watch without changes is silent for a minute, so silence says nothing about the
/// server. The kernel of the other end acknowledges a probe, even if the program there has
/// nothing to send.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// Time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Number of unanswered probes that close a connection on systems without
/// `TCP_USER_TIMEOUT`: after 25 s in all.
const MAX_LOST_PROBES: u32 = 3;

/// Time without an acknowledgment after which a connection is closed (`TCP_USER_TIMEOUT`),
/// whether a probe or a request waits for it.
///
/// Keep-alive alone is not enough: the kernel sends no probes while a request is
/// unacknowledged, and retransmits the request for 15 minutes (`tcp_retries2`).
/// The option also ends the probes, so the number of lost probes counts no longer: a
/// watch is lost after 20 s (seen on Linux 6.18).
#[cfg(any(target_os = "android", target_os = "linux"))]
const MAX_UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// Creates a connector whose connections end within half a minute after the other end
/// vanished.
///
/// A node that loses power, a load balancer that forgets a connection, or a firewall that
/// begins to drop closes nothing: without probes, a watch waits until its longest silence
/// while the state of all Services becomes old. Through a proxy, the probes check the
/// connection to the proxy.
fn direct() -> HttpConnector {
    let mut direct = HttpConnector::new();
    direct.enforce_http(false);
    direct.set_keepalive(Some(PROBE_AFTER));
    direct.set_keepalive_interval(Some(PROBE_INTERVAL));
    direct.set_keepalive_retries(Some(MAX_LOST_PROBES));
    #[cfg(any(target_os = "android", target_os = "linux"))]
    direct.set_tcp_user_timeout(Some(MAX_UNACKNOWLEDGED));
    direct
}

/// Creates a client that connects through `config.proxy_url`, if set, and sends the token.
///
/// HTTP and HTTPS proxies get a CONNECT request regardless of the server's
/// scheme. Must be called within a Tokio runtime.
///
/// # Errors
///
/// TLS or the credentials cannot be set up.
pub(crate) fn client(
    config: &kube::Config,
    bearer: Option<Bearer>,
    metrics: &RequestMetricsLayer,
) -> Result<Client, String> {
    let direct = direct();
    let Some(proxy) = &config.proxy_url else {
        return build(config, direct, bearer, metrics);
    };
    let credentials = credentials(proxy);
    match proxy.scheme_str() {
        Some("socks5" | "socks5h") => {
            let socks = SocksConnector::new(with_port(proxy, 1080), credentials, direct);
            build(config, socks, bearer, metrics)
        }
        Some("https") => {
            let tls = config.rustls_https_connector_with_connector(direct);
            let tls = tls.map_err(|error| error_chain(&error))?;
            build(config, tunnel(proxy, tls, credentials)?, bearer, metrics)
        }
        _ => build(config, tunnel(proxy, direct, credentials)?, bearer, metrics),
    }
}

fn tunnel<C>(
    proxy: &Uri,
    connector: C,
    credentials: Option<(String, String)>,
) -> Result<Tunnel<C>, String> {
    let tunnel = Tunnel::new(proxy.clone(), connector);
    let Some((user, password)) = credentials else {
        return Ok(tunnel);
    };
    let text = BASE64.encode(format!("{user}:{password}").as_bytes());
    let header = HeaderValue::try_from(format!("Basic {text}"));
    Ok(tunnel.with_auth(header.map_err(|error| error_chain(&error))?))
}

fn build<C>(
    config: &kube::Config,
    connector: C,
    bearer: Option<Bearer>,
    metrics: &RequestMetricsLayer,
) -> Result<Client, String>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: StdError + Send + Sync + 'static,
{
    let wrong = |error: kube::Error| error_chain(&error);
    let tls = config.rustls_https_connector_with_connector(connector);
    let mut connector = TimeoutConnector::new(tls.map_err(wrong)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client = Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let authorize = bearer.map(|bearer| {
        let bearer = Arc::new(bearer);
        MapRequestLayer::new(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, bearer.header());
            request
        })
    });
    let service = ServiceBuilder::new()
        .layer(metrics)
        .layer(config.base_uri_layer())
        .option_layer(authorize)
        .option_layer(config.auth_layer().map_err(wrong)?)
        .layer(config.extra_headers_layer().map_err(wrong)?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, &*config.default_namespace).build())
}

/// Returns a URL whose port is `port` if the URL has none.
fn with_port(url: &Uri, port: u16) -> Uri {
    let host = url.host().unwrap_or_default();
    let Ok(authority) = format!("{host}:{port}").parse() else {
        return url.clone();
    };
    let mut parts = url.clone().into_parts();
    if url.port().is_none() {
        parts.authority = Some(authority);
    }
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

/// Returns user and password of a URL.
fn credentials(url: &Uri) -> Option<(String, String)> {
    let (credentials, _) = url.authority()?.as_str().rsplit_once('@')?;
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    Some((decoded(user), decoded(password)))
}

/// Decodes percent-encoded text.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| first == b'%');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_are_decoded() {
        for (url, expected) in [
            ("http://user:p%40ss@proxy:1", Some(("user", "p@ss"))),
            ("http://user@proxy", Some(("user", ""))),
            ("http://user:100%@proxy", Some(("user", "100%"))),
            ("http://proxy:1", None),
        ] {
            let found = credentials(&url.parse().unwrap());
            let expected = expected.map(|(user, password)| (user.into(), password.into()));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn a_url_without_a_port_gets_one() {
        for (url, expected) in [
            ("socks5://proxy", "socks5://proxy:1080/"),
            ("socks5://[fd00::1]", "socks5://[fd00::1]:1080/"),
            ("socks5://proxy:9", "socks5://proxy:9/"),
        ] {
            assert_eq!(with_port(&url.parse().unwrap(), 1080).to_string(), expected);
        }
    }
}
