//! Endpoints and TLS configuration of an etcd cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ALL_VERSIONS, RootCertStore};
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, config::Config};

use crate::InvalidValue;

/// Endpoints and connection settings of an etcd cluster.
///
/// The constants are keys of API servers with the default `--etcd-prefix`:
///
/// | Kubernetes | Addresses of Services | Node ports |
/// |---|---|---|
/// | up to 1.32 | [`SERVICE_IPS`], [`SECONDARY_SERVICE_IPS`] | [`SERVICE_NODE_PORTS`] |
/// | 1.33 | the same keys and IPAddress objects | [`SERVICE_NODE_PORTS`] |
/// | 1.34 and later | IPAddress objects only | [`SERVICE_NODE_PORTS`] |
///
/// With Kubernetes 1.34 and later, allocate addresses as IPAddress objects
/// (`vipline-service-ip-kube`): API servers ignore allocations in the keys.
/// API servers of 1.33 allocate addresses from the keys, and fail to create a Service
/// if the address is allocated as an IPAddress object only.
/// With the feature gate `DisableAllocatorDualWrite` they behave as those of 1.34.
///
/// [`SERVICE_IPS`]: Self::SERVICE_IPS
/// [`SECONDARY_SERVICE_IPS`]: Self::SECONDARY_SERVICE_IPS
/// [`SERVICE_NODE_PORTS`]: Self::SERVICE_NODE_PORTS
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EtcdCluster {
    /// Client URLs of the members, such as `https://10.0.0.1:2379`. If one cannot be
    /// reached, the next one is used.
    pub endpoints: Vec<Box<str>>,
    /// TLS configuration, required for `https`.
    pub tls: Option<EtcdTls>,
    /// Timeout of a request to one member. The connection timeout is half as long.
    pub timeout: Duration,
}

/// TLS configuration, with the contents of PEM files.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdTls {
    /// CA certificates for the certificates of the members.
    pub ca: Vec<u8>,
    /// Client certificate and its private key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdCluster {
    /// Key of the cluster IPs, up to Kubernetes 1.32.
    pub const SERVICE_IPS: &str = "/registry/ranges/serviceips";

    /// Key of the cluster IPs of the second family, up to Kubernetes 1.32.
    pub const SECONDARY_SERVICE_IPS: &str = "/registry/ranges/secondaryserviceips";

    /// Key of the node ports, in all versions of Kubernetes.
    pub const SERVICE_NODE_PORTS: &str = "/registry/ranges/servicenodeports";

    /// Returns a cluster without TLS.
    #[must_use]
    pub fn new(endpoints: &[&str], timeout: Duration) -> Self {
        Self {
            endpoints: endpoints.iter().map(|text| (*text).into()).collect(),
            tls: None,
            timeout,
        }
    }

    /// Validates all settings and returns the HTTP client.
    pub(super) fn agent(&self) -> Result<Agent, InvalidValue> {
        if self.endpoints.is_empty() {
            return Err(InvalidValue::NoEndpoint);
        }
        for endpoint in &self.endpoints {
            let endpoint = endpoint.clone();
            match scheme(&endpoint) {
                None => return Err(InvalidValue::Endpoint { endpoint }),
                Some(Scheme::Https) if self.tls.is_none() => {
                    return Err(InvalidValue::NoAuthority { endpoint });
                }
                Some(_) => {}
            }
        }
        let mut config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A library must not use proxy settings of the environment.
            .proxy(None)
            .user_agent("vipline-service-ip")
            .timeout_connect(Some(self.timeout / 2))
            .timeout_global(Some(self.timeout));
        if let Some(tls) = &self.tls {
            config = config.tls_config(tls.config()?);
        }
        Ok(config.build().new_agent())
    }
}

impl EtcdTls {
    /// Returns a configuration from the contents of PEM files: CA certificates, and the
    /// client certificate with its private key.
    #[must_use]
    pub fn new(ca: impl Into<Vec<u8>>, identity: Option<(Vec<u8>, Vec<u8>)>) -> Self {
        Self {
            ca: ca.into(),
            identity,
        }
    }

    fn config(&self) -> Result<TlsConfig, InvalidValue> {
        const CA: &str = "CA certificate";
        let provider = Arc::new(ring::default_provider());
        let authorities = certificates(&self.ca, CA)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots
                .add(authority.clone())
                .map_err(|error| invalid(CA, error))?;
        }
        let mut identity = None;
        if let Some((certificate, key)) = &self.identity {
            let chain = certificates(certificate, "client certificate")?;
            let der =
                PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid("client key", error))?;
            let secret = PrivateKey::from_pem(key).map_err(|error| invalid("client key", error))?;
            identity = Some(ClientCert::new_with_certs(&convert(&chain), secret));
            // The HTTP client would panic if certificate and key did not match.
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(ALL_VERSIONS)
                .and_then(|builder| {
                    builder
                        .with_root_certificates(roots)
                        .with_client_auth_cert(chain, der)
                })
                .map_err(|error| invalid("client certificate and key", error))?;
        }
        Ok(TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&convert(&authorities)))
            .client_cert(identity)
            .build())
    }
}

/// Omits certificates and key.
impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// URL scheme of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scheme {
    Http,
    Https,
}

/// Returns the scheme of a valid endpoint.
fn scheme(endpoint: &str) -> Option<Scheme> {
    let uri: Uri = endpoint.parse().ok()?;
    if uri.host()?.is_empty() || uri.path() != "/" || uri.query().is_some() {
        return None;
    }
    match uri.scheme_str()? {
        "http" => Some(Scheme::Http),
        "https" => Some(Scheme::Https),
        _ => None,
    }
}

/// Parses all certificates of a PEM file.
fn certificates(
    pem: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, InvalidValue> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(what, error))?;
    if found.is_empty() {
        return Err(invalid(what, "no PEM certificate found"));
    }
    Ok(found)
}

fn convert(certificates: &[CertificateDer<'_>]) -> Vec<Certificate<'static>> {
    certificates
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect()
}

fn invalid(what: &'static str, problem: impl ToString) -> InvalidValue {
    InvalidValue::Certificate {
        what,
        problem: problem.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(endpoints: &[&str], tls: Option<EtcdTls>) -> String {
        let mut cluster = EtcdCluster::new(endpoints, Duration::from_secs(1));
        cluster.tls = tls;
        cluster.agent().unwrap_err().to_string()
    }

    #[test]
    fn invalid_endpoints_are_reported() {
        assert!(error(&[], None).starts_with("no endpoint"));
        for text in [
            "",
            "10.0.0.1:2379",
            "ftp://10.0.0.1",
            "http://",
            "http://a/b",
            "http://a?b",
            "http:///",
        ] {
            let error = error(&["http://a:1", text], None);
            assert!(
                error.starts_with(&format!("{text:?} is not an endpoint")),
                "{error}"
            );
        }
        let error = error(&["https://10.0.0.1:2379"], None);
        assert!(error.contains("requires a CA certificate"), "{error}");
        for text in ["http://10.0.0.1:2379", "http://a/", "http://[::1]:2379"] {
            let cluster = EtcdCluster::new(&[text], Duration::from_secs(1));
            assert!(cluster.agent().is_ok(), "{text}");
        }
    }

    #[test]
    fn invalid_certificates_are_reported() {
        let make = || rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (one, other) = (make(), make());
        let ca = one.cert.pem().into_bytes();
        let identity = |certificate: &str, key: &str| {
            let tls = EtcdTls::new(ca.clone(), Some((certificate.into(), key.into())));
            error(&["https://a"], Some(tls))
        };
        let none = EtcdTls::new(b"none", None);
        let text = error(&["https://a"], Some(none));
        assert_eq!(text, "CA certificate: no PEM certificate found");
        let own = one.cert.pem();
        let text = identity("", &one.signing_key.serialize_pem());
        assert!(text.starts_with("client certificate: no PEM"), "{text}");
        let text = identity(&own, "");
        assert!(text.starts_with("client key: "), "{text}");
        let text = identity(&own, &other.signing_key.serialize_pem());
        assert!(text.starts_with("client certificate and key: "), "{text}");
        let mut cluster = EtcdCluster::new(&["https://a"], Duration::from_secs(1));
        let key = one.signing_key.serialize_pem();
        cluster.tls = Some(EtcdTls::new(ca, Some((own.into(), key.into()))));
        cluster.agent().unwrap();
        assert!(!format!("{cluster:?}").contains("PRIVATE"));
    }
}
