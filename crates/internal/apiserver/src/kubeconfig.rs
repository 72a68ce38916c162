//! What a client needs to know, as the files it reads.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::tls::Certificates;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes a kubeconfig with everything embedded.
///
/// Without a token, the client shows its certificate.
pub(crate) fn kubeconfig(
    address: SocketAddr,
    certificates: &Certificates,
    token: Option<&str>,
) -> String {
    let authority = base64(certificates.authority.as_bytes());
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

/// Writes the files that a pod finds in its service account directory.
///
/// # Errors
///
/// What writing says.
pub(crate) fn in_cluster(
    directory: &Path,
    certificates: &Certificates,
    token: &str,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("ca.crt"), &certificates.authority)?;
    fs::write(directory.join("namespace"), "kube-system")?;
    fs::write(directory.join("token"), token)
}

/// Encodes bytes in base64, padded.
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
    fn base64_is_as_the_standard_has_it() {
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
