//! Tests of mutual TLS.

use std::error::Error as _;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use vipline_service_ip::{Error, EtcdTls, Registry};

use crate::server::{Access, KEY, Server, owner, random};

type Authority = Issuer<'static, KeyPair>;

/// Creates a CA and its certificate.
fn authority() -> (Authority, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), certificate)
}

/// Creates a certificate and its key.
fn issue(authority: &Authority, usages: &[ExtendedKeyUsagePurpose]) -> (String, String) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = usages.to_vec();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn identity(authority: &Authority) -> Option<(Vec<u8>, Vec<u8>)> {
    let (certificate, key) = issue(authority, &[ExtendedKeyUsagePurpose::ClientAuth]);
    Some((certificate.into(), key.into()))
}

#[test]
fn allocation_requires_a_certificate_of_the_ca() {
    let (ours, ca) = authority();
    let (others, other_ca) = authority();
    let client = EtcdTls::new(ca.clone(), identity(&ours));
    // The gateway connects to etcd with the server certificate.
    let both = [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let server = Server::with_access(Access {
        client: client.clone(),
        server: issue(&ours, &both),
    });
    let with = |ca: &str, identity| {
        let mut cluster = server.cluster();
        cluster.tls = Some(EtcdTls::new(ca, identity));
        let mut registry = Registry::new(server.store(&cluster, KEY));
        server.inside(|| registry.allocate(&owner(), &mut random(1)))
    };
    let address = with(&ca, client.identity.clone()).unwrap();
    assert_eq!(address.to_string().split('.').count(), 4);
    for (outcome, words) in [
        // etcd closes the connection, with or without a TLS alert.
        (with(&ca, None), "https://127.0.0.1:2379: "),
        (with(&ca, identity(&others)), "https://127.0.0.1:2379: "),
        (with(&other_ca, identity(&ours)), "invalid peer certificate"),
    ] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{error:?}");
        let source = error.source().unwrap().to_string();
        assert!(source.contains(words), "{source}");
    }
}
