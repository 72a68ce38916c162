//! Generates the certificates of a server.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// DNS names of the server certificate.
const NAMES: [&str; 4] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];

/// A certificate authority with the certificates of server and client.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// TLS configuration of the server.
    pub(crate) config: Arc<ServerConfig>,
    /// CA certificate, as PEM.
    pub(crate) ca_certificate: String,
    /// Client certificate, as PEM.
    pub(crate) client: String,
    /// Private key of the client, as PEM.
    pub(crate) client_key: String,
}

impl Certificates {
    /// Creates an authority and certificates for a server at `address`.
    pub(crate) fn new(address: IpAddr) -> Self {
        let mut params = named(Vec::new(), "kubernetes-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = key();
        let root = params.self_signed(&key).expect("the parameters are valid");
        let issuer = Issuer::new(params, key);

        let mut names: Vec<_> = NAMES.map(str::to_owned).to_vec();
        names.push(address.to_string());
        let (server, server_key) = issue(
            names,
            "kube-apiserver",
            ExtendedKeyUsagePurpose::ServerAuth,
            &issuer,
        );
        let (client, client_key) = issue(
            Vec::new(),
            "system:kube-proxy",
            ExtendedKeyUsagePurpose::ClientAuth,
            &issuer,
        );
        let server_key = PrivatePkcs8KeyDer::from(server_key.serialize_der());
        Self {
            config: config(root.der().clone(), server.der().clone(), server_key.into()),
            ca_certificate: root.pem(),
            client: client.pem(),
            client_key: client_key.serialize_pem(),
        }
    }
}

fn config(
    root: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(root).expect("the CA certificate is valid");
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .expect("the root store is not empty");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)
        .expect("key and certificate belong together");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn issue(
    names: Vec<String>,
    common_name: &str,
    usage: ExtendedKeyUsagePurpose,
    issuer: &Issuer<'_, KeyPair>,
) -> (rcgen::Certificate, KeyPair) {
    let mut params = named(names, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let key = key();
    let certificate = params
        .signed_by(&key, issuer)
        .expect("the parameters are valid");
    (certificate, key)
}

fn named(names: Vec<String>, common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(names).expect("names are ASCII or addresses");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("ring makes P-256 keys")
}
