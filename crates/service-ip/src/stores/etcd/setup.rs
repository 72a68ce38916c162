//! Where a cluster of etcd is, and how it is spoken to.

use std::error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ALL_VERSIONS, RootCertStore};
use thiserror::Error;
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, config::Config};

use crate::RangeError;

/// A cluster of etcd, and how it is spoken to.
///
/// Its constants are keys of API servers with the default `--etcd-prefix`:
///
/// | Kubernetes | Addresses of Services | Node ports |
/// |---|---|---|
/// | up to 1.32 | [`SERVICE_IPS`], [`SECONDARY_SERVICE_IPS`] | [`SERVICE_NODE_PORTS`] |
/// | 1.33 | these keys and IPAddress objects: both are written | [`SERVICE_NODE_PORTS`] |
/// | 1.34 and later | IPAddress objects; these keys are absent, or old and unused | [`SERVICE_NODE_PORTS`] |
///
/// Allocate addresses of 1.34 and later by IPAddress objects
/// (`vipline-service-ip-kube`): API servers give away what only these keys have.
/// API servers of 1.33 draw addresses from these keys, and fail to create a
/// Service if the address is allocated as an IPAddress object only.
/// With the feature gate `DisableAllocatorDualWrite` they are like those of 1.34.
///
/// [`SERVICE_IPS`]: Self::SERVICE_IPS
/// [`SECONDARY_SERVICE_IPS`]: Self::SECONDARY_SERVICE_IPS
/// [`SERVICE_NODE_PORTS`]: Self::SERVICE_NODE_PORTS
#[derive(Clone, Debug)]
pub struct EtcdCluster {
    /// Where its members are, such as `https://10.0.0.1:2379`; each one is
    /// asked if those before it cannot be reached.
    pub endpoints: Vec<Box<str>>,
    /// How `https` is spoken.
    pub tls: Option<EtcdTls>,
    /// How long a request may take; half of it to connect.
    pub timeout: Duration,
}

/// How `https` is spoken: what PEM files have.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificates of the authorities that a member's certificate is from.
    pub ca: Vec<u8>,
    /// Our own certificate, and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why nothing can be asked with these settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EtcdSetupError {
    /// There is nobody to ask.
    #[error("there is no endpoint")]
    NoEndpoint,
    /// It is no address of a member.
    #[error("{endpoint:?} is no endpoint such as https://10.0.0.1:2379")]
    Endpoint {
        /// What was given.
        endpoint: Box<str>,
    },
    /// It is not known whose certificates are to be trusted.
    #[error("{endpoint}: https needs the certificate of an authority")]
    NoAuthority {
        /// The endpoint.
        endpoint: Box<str>,
    },
    /// API servers keep no bitmap of the range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// It is no certificate or no key, or they do not belong together.
    #[error("{what}")]
    Certificate {
        /// Which of them.
        what: &'static str,
        /// Why.
        source: Box<dyn error::Error + Send + Sync>,
    },
}

impl EtcdCluster {
    /// Key of the addresses of Services, up to Kubernetes 1.32.
    pub const SERVICE_IPS: &str = "/registry/ranges/serviceips";

    /// Key of their addresses of the second family, up to Kubernetes 1.32.
    pub const SECONDARY_SERVICE_IPS: &str = "/registry/ranges/secondaryserviceips";

    /// Key of the node ports, in all versions of Kubernetes.
    pub const SERVICE_NODE_PORTS: &str = "/registry/ranges/servicenodeports";

    /// Returns a cluster that speaks plain `http`.
    #[must_use]
    pub fn new(endpoints: &[&str], timeout: Duration) -> Self {
        Self {
            endpoints: endpoints.iter().map(|text| (*text).into()).collect(),
            tls: None,
            timeout,
        }
    }

    /// Checks all settings, and returns what speaks HTTP with them.
    pub(super) fn agent(&self) -> Result<Agent, EtcdSetupError> {
        if self.endpoints.is_empty() {
            return Err(EtcdSetupError::NoEndpoint);
        }
        for endpoint in &self.endpoints {
            let endpoint = endpoint.clone();
            match scheme(&endpoint) {
                None => return Err(EtcdSetupError::Endpoint { endpoint }),
                Some(Scheme::Https) if self.tls.is_none() => {
                    return Err(EtcdSetupError::NoAuthority { endpoint });
                }
                Some(_) => {}
            }
        }
        let mut config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // The environment is none of a library's business.
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
    fn config(&self) -> Result<TlsConfig, EtcdSetupError> {
        const CA: &str = "the certificate of the authority";
        let provider = Arc::new(ring::default_provider());
        let authorities = certificates(&self.ca, CA)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            roots
                .add(authority.clone())
                .map_err(|error| refused(CA, error))?;
        }
        let mut identity = None;
        if let Some((certificate, key)) = &self.identity {
            let chain = certificates(certificate, "the certificate")?;
            let der = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| refused("the key of the certificate", error))?;
            let secret = PrivateKey::from_pem(key)
                .map_err(|error| refused("the key of the certificate", error))?;
            identity = Some(ClientCert::new_with_certs(&convert(&chain), secret));
            // What speaks HTTP would panic if they did not fit.
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(ALL_VERSIONS)
                .and_then(|builder| {
                    builder
                        .with_root_certificates(roots)
                        .with_client_auth_cert(chain, der)
                })
                .map_err(|error| refused("the certificate and its key", error))?;
        }
        Ok(TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&convert(&authorities)))
            .client_cert(identity)
            .build())
    }
}

/// The key is nobody's to see.
impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// What an endpoint speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scheme {
    Http,
    Https,
}

/// Returns what an endpoint speaks, if it is one.
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

/// Reads all certificates of a file.
fn certificates(
    pem: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, EtcdSetupError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(what, error))?;
    if found.is_empty() {
        return Err(refused(what, "there is none in PEM"));
    }
    Ok(found)
}

fn convert(certificates: &[CertificateDer<'_>]) -> Vec<Certificate<'static>> {
    certificates
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect()
}

fn refused(
    what: &'static str,
    source: impl Into<Box<dyn error::Error + Send + Sync>>,
) -> EtcdSetupError {
    EtcdSetupError::Certificate {
        what,
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(endpoints: &[&str], tls: Option<EtcdTls>) -> String {
        let mut cluster = EtcdCluster::new(endpoints, Duration::from_secs(1));
        cluster.tls = tls;
        let error = cluster.agent().unwrap_err();
        let source = error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    }

    #[test]
    fn what_is_no_endpoint_is_told() {
        assert!(error(&[], None).starts_with("there is no endpoint"));
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
                error.starts_with(&format!("{text:?} is no endpoint")),
                "{error}"
            );
        }
        let error = error(&["https://10.0.0.1:2379"], None);
        assert!(error.contains("needs the certificate"), "{error}");
        for text in ["http://10.0.0.1:2379", "http://a/", "http://[::1]:2379"] {
            let cluster = EtcdCluster::new(&[text], Duration::from_secs(1));
            assert!(cluster.agent().is_ok(), "{text}");
        }
    }

    #[test]
    fn certificates_that_are_none_are_told() {
        let make = || rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (one, other) = (make(), make());
        let ca = one.cert.pem().into_bytes();
        let identity = |certificate: &str, key: &str| {
            let tls = EtcdTls {
                ca: ca.clone(),
                identity: Some((certificate.into(), key.into())),
            };
            error(&["https://a"], Some(tls))
        };
        let none = EtcdTls {
            ca: b"none".into(),
            identity: None,
        };
        let text = error(&["https://a"], Some(none));
        assert_eq!(
            text,
            "the certificate of the authority: there is none in PEM"
        );
        let own = one.cert.pem();
        let text = identity("", &one.signing_key.serialize_pem());
        assert!(text.starts_with("the certificate: there"), "{text}");
        let text = identity(&own, "");
        assert!(text.starts_with("the key of the certificate: "), "{text}");
        let text = identity(&own, &other.signing_key.serialize_pem());
        assert!(text.starts_with("the certificate and its key: "), "{text}");
        let mut cluster = EtcdCluster::new(&["https://a"], Duration::from_secs(1));
        let key = one.signing_key.serialize_pem();
        cluster.tls = Some(EtcdTls {
            ca,
            identity: Some((own.into(), key.into())),
        });
        cluster.agent().unwrap();
        assert!(!format!("{cluster:?}").contains("PRIVATE"));
    }
}
