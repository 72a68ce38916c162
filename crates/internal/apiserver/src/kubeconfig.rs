//! Configuration files for clients.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::tls::Certificates;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns a kubeconfig with embedded credentials: the token, or the client
/// certificate if `token` is [`None`].
pub(crate) fn kubeconfig(
    address: SocketAddr,
    certificates: &Certificates,
    token: Option<&str>,
) -> String {
    let authority = base64(certificates.ca_certificate.as_bytes());
    let user = token.map_or_else(
        || {
            let certificate = base64(certificates.client.as_bytes());
            let key = base64(certificates.client_key.as_bytes());
            format!("client-certificate-data: {certificate}\n    client-key-data: {key}")
        },
        |token| format!("token: {token}"),
    );
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    certificate-authority-data: {authority}
    server: https://{address}
users:
- name: kube-proxy
  user:
    {user}
contexts:
- name: test
  context:
    cluster: test
    user: kube-proxy
current-context: test
"
    )
}

/// Writes the files of a pod's service account directory.
///
/// # Errors
///
/// If a file cannot be written.
pub(crate) fn write_service_account(
    directory: &Path,
    certificates: &Certificates,
    token: &str,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("ca.crt"), &certificates.ca_certificate)?;
    fs::write(directory.join("namespace"), "kube-system")?;
    fs::write(directory.join("token"), token)
}

/// Encodes bytes in base64 with padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .chain(&[0, 0])
            .take(3)
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        for digit in 0..4 {
            text.push(if digit <= group.len() {
                char::from(ALPHABET[bits >> (18 - 6 * digit) & 63])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_test_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
            ("\u{ff}\u{fe}", "w7/Dvg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
